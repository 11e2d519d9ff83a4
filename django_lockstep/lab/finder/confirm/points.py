"""Points of a running test at which it can be forked: the requests that it sends, and its calls of functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django_lockstep.lab.finder.confirm.forks import RequestActor
from django_lockstep.lab.finder.record.calls import Call
from django_lockstep.lab.finder.record.requests import CallNext, RequestNumbers

__all__ = ["Actor", "Point", "Points"]

Actor = RequestActor | Call
"""What a test was about to do, to be done by others too."""


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


class Points:
    """Has ``reach`` called at each point of a test; afterwards the test goes on."""

    def __init__(self, reach: Callable[[Point], None]) -> None:
        self._reach = reach
        self._requests = RequestNumbers()
        self._calls: Counter[str] = Counter()

    def restart(self) -> None:
        """Begin to count, when a test's fixtures are there and its body begins."""
        self._requests.restart()
        self._calls.clear()

    def on_request(self, handler: object, environ: dict[str, Any], call_next: CallNext) -> Any:
        """Have a request reached, then let the test send it; `intercept` calls this."""
        self._reach(Point(RequestActor.of(environ, call_next), self._requests.take()))
        return call_next(environ)

    def on_call(self, name: str, call: Call) -> None:
        """Have a call reached, and count it; `intercept_calls` calls this, and the test makes the call afterwards."""
        number = self._calls[name]
        self._calls[name] += 1
        self._reach(Point(call, number, name))
