"""Forks of a test: the request that it is sending is explored against itself, and then the test goes on."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from io import BytesIO
from itertools import count
from typing import Any
from unittest import mock

from django.apps import apps
from django.conf import settings
from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.sessions.base_session import AbstractBaseSession
from django.core import mail
from django.core.signals import got_request_exception
from django.db import connections
from django.http.response import HttpResponseBase
from django.test.signals import template_rendered
from django.urls import Resolver404, resolve

from django_lockstep.lab.explorer import Exploration, NotExplorable, Response, Run, Scenario, explore, replay
from django_lockstep.lab.explorer.requests import location_of
from django_lockstep.lab.finder.derive.candidates import Witness
from django_lockstep.lab.finder.record.interception import Call, CallNext, buffer_body, intercept, intercept_calls
from django_lockstep.lab.wording import gettext as _
from django_lockstep.lab.wording import joined


def not_compared() -> tuple[str, ...]:
    """Return what every request may write: sessions, the log of the admin, Django's caches, last logins."""
    tables = [model._meta.db_table for model in apps.get_models() if issubclass(model, AbstractBaseSession)]
    tables += [cache["LOCATION"] for cache in settings.CACHES.values() if cache["BACKEND"].endswith("DatabaseCache")]
    users = [model._meta.db_table for model in apps.get_models() if issubclass(model, AbstractBaseUser)]
    return *(f"{table}.*" for table in ("django_admin_log", *tables)), *(f"{table}.last_login" for table in users)


@dataclass(frozen=True, slots=True)
class RequestActor:
    """Sends a request once more, from the actor's thread, and returns its answer without the body.

    ``call`` passes an environ of WSGI to the handler, below the test's client: its cookies are those of the request.
    """

    environ: Mapping[str, Any] = field(compare=False)
    body: bytes = field(compare=False)
    call: Callable[[dict[str, Any]], HttpResponseBase] = field(compare=False)
    origin: object = field(default_factory=object)
    """What copies for other users have in common. They are equal, so that a search interrupts one of them alone: the
    other one's schedules are the same with the users exchanged."""
    is_copy: bool = field(default=False, compare=False)
    """Whether a copy of the user sends it."""

    @classmethod
    def of(cls, environ: dict[str, Any], call: Callable[[dict[str, Any]], HttpResponseBase]) -> RequestActor:
        """Return an actor for the request."""
        return cls(environ, buffer_body(environ), call)

    @property
    def name(self) -> str:
        """The method and the route, as recordings name requests; empty without a route."""
        try:
            return f"{self.environ['REQUEST_METHOD']} {resolve(self.environ['PATH_INFO']).route}"
        except Resolver404:
            return ""

    @property
    def title(self) -> str:
        """Method and path, such as ``POST seats/7/book``, without texts in it, which may be anybody's."""
        path = self.environ["PATH_INFO"]
        with suppress(Resolver404):
            match = resolve(path)
            hidden = {str(value) for value in (*match.args, *match.kwargs.values()) if not str(value).isdecimal()}
            path = "/".join("…" if part in hidden else part for part in path.split("/"))
        title = f"{self.environ['REQUEST_METHOD']} {path}"
        return _("{request} by another user", request=title) if self.is_copy else title

    def __call__(self, fixture: object) -> Response:
        raised: list[str] = []
        thread = threading.current_thread()

        def note(sender: object, **kwargs: Any) -> None:
            # Signals of other actors arrive in their threads.
            if threading.current_thread() is thread and (kind := sys.exc_info()[0]) is not None:
                raised.append(kind.__name__)

        got_request_exception.connect(note, weak=False)
        try:
            response = self.call({**self.environ, "wsgi.input": BytesIO(self.body)})
        finally:
            got_request_exception.disconnect(note)
        location = location_of(response)
        return Response(status=response.status_code, body=b"", location=location, error=" ".join(raised))


_MOST_CALLS = 4
"""Calls of one function in one test that may be the one that was recorded."""
Actor = RequestActor | Call
"""What a test was about to do, to be done by others too."""


@dataclass(frozen=True, slots=True)
class Fork:
    """Actors that start from where the test stands; they see the rows that it has committed."""

    actors: Mapping[str, Callable[[Any], Any]]
    remedies: dict[tuple[str, ...], int] = field(default_factory=dict)
    """Schedules around writes of a table that all end right with a remedy, by the table and the change of the code, or
    the model's label and the key of the row that was locked first; 0 if one ends wrong."""
    circumstance: str = ""
    """What was changed for all of them, such as a limit."""

    @property
    def titles(self) -> tuple[str, ...]:
        """What each actor does, such as ``A: POST seats/7/book``, and what was changed for them."""
        titles = [joined([name, actor.title], ": ") for name, actor in self.actors.items() if isinstance(actor, Actor)]
        return (*titles, *filter(None, [self.circumstance]))

    def explore(
        self,
        *,
        seconds: float,
        tables: Collection[str] = (),
        stop: bool | Callable[[Run], bool] = False,
        before: Exploration | None = None,
    ) -> Exploration:
        """Explore directed schedules for so many seconds at most: around all writes, or around those of these tables.

        ``stop`` is what `explore` calls ``stop_on_first``. After an exploration ``before`` of these requests or calls
        caches are warm, and it is known which columns differ without any race.

        Raises `NotExplorable` where the test has a transaction open, and as `explore` does.
        """
        require_committed()
        with apart_from_the_test():
            # All interleavings of two requests would take longer than any budget.
            return explore(
                self._scenario(),
                directed=tables or True,
                timeout=seconds,
                stop_on_first=stop,
                warm_up=before is None,
                ignore=(*not_compared(), *(before.not_compared if before else ())),
                # A deadlock is a failed request, also where the data are right afterwards.
                no_deadlock=True,
            )

    def replay(self, schedule: str) -> Run:
        """Run one schedule again, with the values read. Raises as `replay` does."""
        with apart_from_the_test():
            return replay(self._scenario(), schedule, ignore=not_compared(), no_deadlock=True)

    def _scenario(self) -> Scenario:
        # Nothing to set up: what the test has committed is put back before each schedule.
        return Scenario(set_up=lambda: None, actors=self.actors)


def require_committed() -> None:
    """Raise `NotExplorable` in a transaction of the test: others would wait for its locks, and not see its rows."""
    if any(connection.in_atomic_block for connection in connections.all(initialized_only=True)):
        raise NotExplorable(_("the test has opened a transaction around the request or call"))


@contextmanager
def apart_from_the_test() -> Iterator[None]:
    """Keep what the actors do from the test: from its client's receivers, and its outbox."""
    with ExitStack() as stack:
        # The test's client notes templates and errors of whatever request is being handled.
        for signal in (template_rendered, got_request_exception):
            # Both, because the cache holds the receivers that are taken away.
            stack.callback(signal.sender_receivers_cache.clear)
            stack.enter_context(mock.patch.object(signal, "receivers", []))
            signal.sender_receivers_cache.clear()
        if hasattr(mail, "outbox"):
            stack.callback(setattr, mail, "outbox", mail.outbox)
            # A copy: the project may look at what was sent before, and what the actors send goes with it.
            mail.outbox = list(mail.outbox)
        yield


def answer_alone(actor: Callable[[Any], Any], note: Callable[[Any, Any, bool, Any], None]) -> Any:
    """Return what a request or call answers; ``note`` is called behind each statement with its text and parameters.

    As an execute wrapper is, also with whether there are many, and the context. What the actor writes stays there, and
    its errors are raised.
    """

    def noted(execute: Callable[..., Any], *statement: Any) -> Any:
        result = execute(*statement)
        note(*statement)
        return result

    with ExitStack() as stack:
        stack.enter_context(apart_from_the_test())
        for connection in connections.all():
            stack.enter_context(connection.execute_wrapper(noted))
        return actor(None)


# Points of a running test at which it can be forked: the requests that it sends, and its calls of functions.


@dataclass(frozen=True, slots=True)
class Point:
    """A request that a test is about to send, or a call that it is about to make."""

    actor: Actor
    number: int
    """As recordings number them: requests over all views, calls by function."""
    call: str = ""
    """The name of the function; empty for a request."""

    @property
    def kind(self) -> str:
        return "call" if self.call else "request"

    @property
    def name(self) -> str:
        """The unit's name, as recordings have it; empty for a request without a route."""
        return self.actor.name if isinstance(self.actor, RequestActor) else self.call

    def is_of(self, unit: str, witness: Witness, *, kind: str) -> bool:
        """Whether the witness, of this unit of this kind, was recorded here."""
        if not self.call:
            return kind == "request" and witness.number == self.number
        # Calls that sent no statement were not recorded, so that it may be a later one.
        return self.call == unit and witness.number <= self.number < witness.number + _MOST_CALLS


class Points:
    """Has ``reach`` called at each point of a test, then the test goes on, and what it returned is called behind it."""

    def __init__(self, reach: Callable[[Point], Callable[[], None] | None]) -> None:
        self._reach = reach
        self._is_within = False
        self.restart()

    def restart(self) -> None:
        """Begin to count, when a test's fixtures are there and its body begins: as the recorder counts."""
        self._requests = count()
        self._calls: Counter[str] = Counter()

    @contextmanager
    def watched(self, names: Collection[str]) -> Iterator[None]:
        """See all requests of the process, and this thread's calls of the functions with these names."""
        with intercept(self.on_request), intercept_calls(names, self.on_call):
            yield

    def on_request(self, handler: object, environ: dict[str, Any], call_next: CallNext) -> Any:
        """Have a request reached, then let the test send it; `intercept` calls this."""
        with self._at(Point(RequestActor.of(environ, call_next), next(self._requests))):
            return call_next(environ)

    def on_call(self, name: str, call: Call) -> AbstractContextManager[None]:
        """Have a call reached, and count it; `intercept_calls` calls this, and has the test make the call within."""
        if self._is_within:  # a part of that
            return nullcontext()
        number = self._calls[name]
        self._calls[name] += 1
        return self._at(Point(call, number, name))

    @contextmanager
    def _at(self, point: Point) -> Iterator[None]:
        leave = self._reach(point)
        was_within, self._is_within = self._is_within, True
        try:
            yield
        finally:
            self._is_within = was_within
            if leave is not None:
                leave()
