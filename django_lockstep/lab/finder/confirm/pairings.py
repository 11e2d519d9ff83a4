"""With what a request or a call is raced: itself, the same by another user, an earlier one, one of another test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from django.db import DEFAULT_DB_ALIAS

from django_lockstep.lab.finder.confirm.clones import clone_user, session_of, session_user
from django_lockstep.lab.finder.confirm.committed import DatabaseCopy, copied_databases
from django_lockstep.lab.finder.confirm.forks import Fork, RequestActor, require_committed
from django_lockstep.lab.finder.confirm.points import Actor, Point
from django_lockstep.lab.finder.confirm.transplants import Captured, Trial
from django_lockstep.lab.finder.errors import CannotClone

__all__ = ["Earlier", "Pairing", "put_back", "with_another_user", "with_earlier", "with_itself", "with_partner"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """With what a request or a call is raced."""

    kind: str
    """``request`` or ``call``."""
    after: int | None = None
    """The number of an earlier one of the test; None if it is raced with itself."""
    after_call: str = ""
    """Of a call, the name of the function that the earlier one is of."""
    two_users: bool = False
    unit: str = ""
    """The name of what is raced, where it is raced with a request of another test."""
    partner: str = ""
    """The name of that one's unit."""
    partner_test: str = ""
    partner_number: int = 0

    def __str__(self) -> str:
        if self.partner:
            return f"`{self.unit}` with `{self.partner}` of another test"
        if self.two_users:
            return f"the {self.kind} by two users"
        return f"the {self.kind} twice" if self.after is None else f"the {self.kind} and one before it in the test"


@dataclass(frozen=True, slots=True)
class Earlier:
    """A point that the test has passed, with a copy of the databases from just before it."""

    point: Point
    before: DatabaseCopy

    @classmethod
    def note(cls, point: Point) -> Earlier:
        """Copy the databases; the copy is there until it is closed. Raises `NotExplorable` in a transaction."""
        require_committed()
        return cls(point, DatabaseCopy(copied_databases()))


@contextmanager
def with_itself(actor: Actor) -> Iterator[Fork]:
    """Pair two of the same: a double click, a client that tries again, two workers with one task."""
    yield Fork({"A": actor, "B": actor})


@contextmanager
def with_another_user(request: RequestActor) -> Iterator[Fork]:
    """Pair the request with that of a copy of its user, gone afterwards. Raises `CannotClone` if there is none."""
    user = session_user(request.environ, using=DEFAULT_DB_ALIAS)
    if user is None:
        raise CannotClone("the request has no user")
    with put_back():
        environ = clone_user(request.environ, user, using=DEFAULT_DB_ALIAS)
        yield Fork({"A": request, "B": request.copy_with(environ)})


@contextmanager
def with_earlier(earlier: Earlier, actor: Actor) -> Iterator[Fork]:
    """Pair it with an earlier one of the test, from where the test was before that.

    What the test did in between is undone, except that the sessions of both requests are there.
    """
    actors = {"A": earlier.point.actor, "B": actor}
    sessions = [session_of(one.environ) for one in actors.values() if isinstance(one, RequestActor)]
    with put_back():
        earlier.before.restore()
        for session in filter(None, sessions):
            # One that was made in between is gone with the rest.
            session.save(must_create=not session.exists(session.session_key))
        yield Fork(actors)


@contextmanager
def with_partner(partner: Captured, request: RequestActor) -> Iterator[Fork]:
    """Pair the request with one of another test, moved here.

    Raises `CannotClone` if it cannot be moved, is refused here, or has nothing to do with the request.
    """
    with put_back() as before:
        # Sent alone to see what it reads and writes, and undone: the race starts from here.
        trial = Trial.of(request)
        before.restore()
        moved = partner.moved_to(request, trial)
        with put_back():  # as it is now: a copy of its user may have been made
            other = Trial.of(moved)
        # Refused in every schedule, it would make all of them end alike.
        if not other.is_accepted:
            raise CannotClone(f"alone it is answered with {other.answer} here")
        if not other.interferes_with(trial) and not trial.interferes_with(other):
            raise CannotClone("alone it changes nothing here that the other one reads")
        yield Fork({"A": request, "B": moved})


@contextmanager
def put_back() -> Iterator[DatabaseCopy]:
    """Have the databases afterwards as they were before. Raises `NotExplorable` in a transaction."""
    require_committed()
    with closing(DatabaseCopy(copied_databases())) as before:
        try:
            yield before
        finally:
            before.restore()
