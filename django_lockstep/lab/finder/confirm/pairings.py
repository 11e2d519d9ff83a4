"""With what a request or a call is raced: itself, the same by another user, an earlier one, one of another test."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from django_lockstep.lab.finder.confirm.clones import clone_user, session_of, session_user
from django_lockstep.lab.finder.confirm.committed import DatabaseCopy, copied_databases
from django_lockstep.lab.finder.confirm.forks import Actor, Fork, Point, RequestActor, require_committed
from django_lockstep.lab.finder.confirm.limits import find_limit
from django_lockstep.lab.finder.confirm.remedies import REMEDIES
from django_lockstep.lab.finder.confirm.transplants import Captured, DryRun, for_another_object, in_other_order
from django_lockstep.lab.finder.derive.candidates import Candidate, Witness
from django_lockstep.lab.finder.errors import CannotClone
from django_lockstep.lab.finder.findings import Against, Opponent
from django_lockstep.lab.finder.record.interception import Call, current_request
from django_lockstep.lab.wording import gettext, gettext_noop


@dataclass(frozen=True, kw_only=True)
class Pairing(Opponent):
    """With what a request or a call is raced."""

    kind: str
    """``request`` or ``call``."""
    unit: str = ""
    """The name of what is raced, where it is raced with one of another test."""
    partner: str = ""
    """The name of that one's unit."""

    def __str__(self) -> str:
        if self.partner:
            return gettext("`{unit}` with `{partner}` of another test", unit=self.unit, partner=self.partner)
        if self.after is None:
            return gettext(AGAINST[self.against].words, kind=_KINDS[self.kind])
        return _BEFORE[self.kind, "call" if self.after_call else "request"]


_KINDS = {"request": gettext("request"), "call": gettext("call")}
_BEFORE = {
    ("request", "request"): gettext("the request and one before it in the test"),
    ("request", "call"): gettext("the request and a call before it in the test"),
    ("call", "call"): gettext("the call and one before it in the test"),
    ("call", "request"): gettext("the call and a request before it in the test"),
}


class Earlier(NamedTuple):
    """A point that the test has passed, with a copy of the databases from just before it."""

    point: Point
    before: DatabaseCopy
    """When the test leaves the point, what it has inserted is noted: rows that are new later are the test's."""


def copy_databases() -> DatabaseCopy:
    """Copy the databases; the copy is there until it is closed. Raises `NotExplorable` in a transaction."""
    require_committed()
    return DatabaseCopy(copied_databases())


def with_itself(actor: Actor) -> AbstractContextManager[Fork]:
    """Pair two of the same: a double click, a client that tries again, two workers with one task."""
    return nullcontext(Fork({"A": actor, "B": actor}))


@contextmanager
def with_another_user(request: RequestActor) -> Iterator[Fork]:
    """Pair the request with that of a copy of its user, gone afterwards. Raises `CannotClone` if there is none."""
    user = session_user(request.environ)
    if user is None:
        # Sent alone to see whom the project takes it to be from: by a token, or because the test says so.
        with _tried_alone(request):
            user = getattr(current_request(), "user", None)
    if user is None or user.pk is None:
        raise CannotClone(gettext("the request has no user"))
    with put_back():
        environ = clone_user(request.environ, user)
        yield Fork({"A": request, "B": replace(request, environ=environ, is_copy=True)})


@contextmanager
def with_lower_limit(actor: Actor) -> Iterator[Fork]:
    """Pair two of the same that may add one more row until a limit is reached. Raises `CannotClone` if there is none.

    The tests of a project stay far below most limits, so that no order of two exceeds them.
    """
    with put_back() as before:
        limit = find_limit(actor)
        before.restore()
        with limit.lowered():
            yield Fork({"A": actor, "B": actor}, circumstance=str(limit))


@contextmanager
def with_earlier(earlier: Earlier, actor: Actor) -> Iterator[Fork]:
    """Pair it with an earlier one of the test, from where the test was before that.

    The rows that the test has made in between are there, too, and the sessions of both requests. Otherwise what it did
    in between is undone.
    """
    actors = {"A": earlier.point.actor, "B": actor}
    sessions = [session_of(peer.environ) for peer in actors.values() if isinstance(peer, RequestActor)]
    with put_back():
        earlier.before.restore_later()
        for session in filter(None, sessions):
            # One that was made in between is gone with the rest.
            session.save(must_create=not session.exists(session.session_key))
        yield Fork(actors)


@contextmanager
def with_moved(move: Callable[[Any, DryRun], Actor], actor: Actor) -> Iterator[Fork]:
    """Pair it with what ``move`` makes for it and its trial: one of another test, for another object, or other order.

    Raises `CannotClone` as ``move`` does, and if that one is refused here, or has nothing to do with it.
    """
    with _tried_alone(actor) as trial:
        moved = move(actor, trial)
        with put_back():  # as it is now: a copy of its user may have been made
            partner = DryRun.of(moved)
        # Refused in every schedule, it would make all of them end alike.
        if not partner.is_accepted:
            raise CannotClone(gettext("alone it is answered with {answer} here", answer=str(partner.answer)))
        if not partner.interferes_with(trial) and not trial.interferes_with(partner):
            raise CannotClone(gettext("alone it changes nothing here that the other one reads"))
        yield Fork({"A": actor, "B": moved})


@contextmanager
def _tried_alone(actor: Actor) -> Iterator[DryRun]:
    """Make it to see what it reads and writes, and undo that; all is put back after the block, too."""
    with put_back() as before:
        trial = DryRun.of(actor)
        before.restore()
        yield trial


@dataclass(frozen=True, slots=True)
class Variant:
    """How a request or a call is raced with itself."""

    words: str
    """With ``{kind}`` for request or call."""
    pair: Callable[[Any], AbstractContextManager[Fork]]
    kinds: Collection[str]
    """The kinds of candidates that it may show."""
    of_calls: bool = True


AGAINST: Mapping[Against, Variant] = {
    "": Variant(gettext_noop("the {kind} twice"), with_itself, kinds=REMEDIES),
    "another user": Variant(gettext_noop("the {kind} by two users"), with_another_user, kinds=REMEDIES, of_calls=False),
    "another object": Variant(
        gettext_noop("the {kind} for two objects"),
        partial(with_moved, for_another_object),
        # They may be about how many objects a user may have, or all objects count for one row.
        kinds=("check-then-insert", "write-skew", "read-modify-write", "check-then-act"),
    ),
    "the other order": Variant(
        gettext_noop("the {kind} twice, with the rows that it locks exchanged"),
        partial(with_moved, in_other_order),
        kinds=("lock-order",),
        of_calls=False,
    ),
    "a lower limit": Variant(
        gettext_noop("the {kind} twice, with the limit of what is counted lowered"),
        with_lower_limit,
        kinds=("check-then-insert", "check-then-act", "write-skew"),
    ),
}
"""By what differs, the same first."""


@contextmanager
def put_back() -> Iterator[DatabaseCopy]:
    """Have the databases afterwards as they were before. Raises `NotExplorable` in a transaction."""
    with closing(copy_databases()) as before:
        try:
            yield before
        finally:
            before.restore()


# Requests and calls of different tests that are raced with each other: one writes what the other one reads.

_Role = tuple[Candidate, str, str]
"""A candidate that a request or call is of, the name of its unit there, and that of the other unit."""


def partner_tests(candidate: Candidate) -> list[str]:
    """Return a test of each of the candidate's partners that does not show the candidate itself, if there is one."""
    own = {witness.test for witness in candidate.witnesses}
    tests: list[str] = []
    for partner in candidate.partners:
        tests += [witness.test for witness in partner.witnesses if witness.test not in own][:1]
    return tests


class Partners:
    """Keeps one of each unit that may be raced with those of other tests; whichever comes second is raced."""

    def __init__(self) -> None:
        self._captured: dict[str, Captured] = {}

    def pairings(
        self, test: str, point: Point, shown: Iterable[tuple[Candidate, Witness]]
    ) -> Iterator[tuple[Pairing, AbstractContextManager[Fork], list[Candidate]]]:
        """Yield it with those of other tests, for the candidates that are of both."""
        by_names: dict[tuple[str, str], list[Candidate]] = defaultdict(list)
        for candidate, name, partner_name in _roles(point, shown):
            by_names[name, partner_name].append(candidate)
        for (name, partner_name), candidates in by_names.items():
            partner = self._captured.get(partner_name)
            # One of this test is paired as an earlier one, without being moved.
            if partner is not None and partner.test != test:
                pairing = Pairing(
                    kind=point.kind,
                    unit=name,
                    partner=partner_name,
                    partner_call=partner_name if isinstance(partner.actor, Call) else "",
                    partner_test=partner.test,
                    partner_number=partner.number,
                )
                yield pairing, with_moved(partner.moved_to, point.actor), candidates

    def capture(self, test: str, point: Point, shown: Iterable[tuple[Candidate, Witness]]) -> None:
        """Keep it if another test may need it. Raises what keeps it from being made once more."""
        for candidate, name, _ in _roles(point, shown):
            # One of each unit: to capture it, the databases are copied and it is tried.
            if name not in self._captured and partner_tests(candidate):
                with put_back():
                    captured = Captured.of(point.actor, test=test, number=point.number)
                if captured.trial.is_accepted:
                    self._captured[name] = captured


def _roles(point: Point, shown: Iterable[tuple[Candidate, Witness]]) -> Iterator[_Role]:
    for candidate, witness in shown:
        for partner in candidate.partners:
            if witness in candidate.witnesses and point.is_of(candidate.unit, witness, kind=candidate.unit_kind):
                yield candidate, candidate.unit, partner.unit
            elif witness in partner.witnesses and point.is_of(partner.unit, witness, kind=partner.kind):
                yield candidate, partner.unit, candidate.unit
