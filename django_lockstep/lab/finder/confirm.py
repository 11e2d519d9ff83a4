"""Confirms candidates: where a test does what may race, schedules of it and a second one are really run."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import Any

from django.http.response import HttpResponseBase

from django_lockstep.lab.explorer import ExplorerError
from django_lockstep.lab.finder.calls import Call
from django_lockstep.lab.finder.candidates import Candidate, Witness
from django_lockstep.lab.finder.errors import FinderError
from django_lockstep.lab.finder.findings import Finding, Place
from django_lockstep.lab.finder.forks import Fork, RequestActor
from django_lockstep.lab.finder.judging import Attempts
from django_lockstep.lab.finder.pairings import Earlier, Pairing, with_another_user, with_earlier, with_itself
from django_lockstep.lab.finder.requests import RequestNumbers

__all__ = ["Confirmation"]

MOST_WITNESSES = 4
"""Places at which a candidate is tried before it counts as not confirmed."""
MOST_EARLIER = 3
"""Requests or calls of a test with which later ones of it are paired."""
SECONDS_EACH = 20.0
"""Seconds that one fork may take, of whatever budget."""
_Paired = tuple[Pairing, AbstractContextManager[Fork]]
Actor = Callable[[Any], Any]


@dataclass(slots=True)
class Confirmation:
    """Decides where to fork which tests, and collects what the forks say about the candidates.

    ``report`` is called with each finding as soon as it is known; a later one on the same candidate replaces it.
    """

    candidates: Sequence[Candidate]
    budget: float
    """Seconds that all forks together may take."""
    report: Callable[[Finding], None]
    values: bool = False
    """Whether findings may show long strings."""
    _spent: float = 0.0
    _attempts: dict[str, Attempts] = field(default_factory=dict)
    _test: str = ""
    _requests: RequestNumbers = field(default_factory=RequestNumbers)
    _calls: Counter[str] = field(default_factory=Counter)
    _earlier: list[Earlier] = field(default_factory=list)
    _failures: dict[str, str] = field(default_factory=dict)
    _forking: threading.Lock = field(default_factory=threading.Lock)
    """Held by the thread that forks: a live server's other threads go on without."""

    def tests(self) -> list[str]:
        """Return the witness tests, those of the worst candidates first."""
        ordered = sorted(self.candidates, key=lambda candidate: candidate.rank)
        turns = max((len(candidate.witnesses) for candidate in ordered), default=0)
        tests = [one.witnesses[turn].test for turn in range(turns) for one in ordered if turn < len(one.witnesses)]
        return list(dict.fromkeys(tests))

    def is_wanted(self, test: str) -> bool:
        """Whether the test shows a candidate that is still open, and there is time left."""
        return self._spent < self.budget and any(True for _ in self._open(test))

    def begin(self, test: str) -> None:
        """Note that the body of a test begins; called with an empty name, that it has ended."""
        self._test = test
        self._requests.restart()
        self._calls.clear()
        while self._earlier:
            self._earlier.pop().before.close()

    def note_failure(self, test: str, message: str) -> None:
        """Note how a test failed, which may be why it did not come to what was to be forked."""
        self._failures.setdefault(test, message)

    def calls(self) -> set[str]:
        """Return the names of the functions whose calls in this test are wanted."""
        wanted = [candidate for candidate, _ in self._open(self._test) if candidate.unit_kind == "call"]
        partners = {candidate.partner for candidate in wanted if candidate.partner_kind == "call"}
        return {candidate.unit for candidate in wanted} | partners

    def handle_request(
        self, environ: dict[str, Any], call: Callable[[dict[str, Any]], HttpResponseBase]
    ) -> HttpResponseBase:
        """Fork at the request if it is wanted, then send it as the test does."""
        request = RequestActor.of(environ, call)
        self._reach(request.name, request, self._requests.take())
        return call(environ)

    def handle_call(self, name: str, call: Call) -> None:
        """Fork at the call if it is wanted; the test makes it afterwards."""
        self._reach(name, call, self._calls[name])
        self._calls[name] += 1

    def close(self) -> None:
        """Report the candidates that no fork was made for."""
        for candidate in self.candidates:
            if candidate.id not in self._attempts:
                reason = _obstacle(candidate) or self._why_not_reached(candidate)
                self.report(Finding(candidate=candidate.id, verdict="not tried", reason=reason))

    def _why_not_reached(self, candidate: Candidate) -> str:
        failed = (self._failures.get(witness.test) for witness in candidate.witnesses)
        if (message := next(filter(None, failed), None)) is not None:
            return f"its test failed before it came to it: {message}"
        return "the time was over" if self._spent >= self.budget else "its tests did not come to it"

    def _open(self, test: str) -> Iterator[tuple[Candidate, Witness]]:
        for candidate in self.candidates:
            if self._is_open(candidate):
                places = (*candidate.witnesses, *candidate.partner_witnesses)
                yield from ((candidate, witness) for witness in places if witness.test == test)

    def _is_open(self, candidate: Candidate) -> bool:
        attempts = self._attempts.get(candidate.id)
        if attempts is None:
            return not _obstacle(candidate)
        return not attempts.confirmed and attempts.places < MOST_WITNESSES

    def _reach(self, name: str, actor: Actor, number: int) -> None:
        """Fork here if that is wanted, and nothing else is being forked."""
        if self._spent >= self.budget or not self._forking.acquire(blocking=False):
            return
        begun = time.monotonic()
        try:
            self._fork(name, actor, number, until=begun + self.budget - self._spent)
        finally:
            self._spent += time.monotonic() - begun
            self._forking.release()

    def _fork(self, name: str, actor: Actor, number: int, *, until: float) -> None:
        """Fork if a candidate was recorded here, or may race with what a candidate did before in this test."""
        kind = "request" if isinstance(actor, RequestActor) else "call"
        there = [(candidate, witness) for candidate, witness in self._open(self._test) if candidate.unit_kind == kind]
        here = {one.id: one for one, place in there if _is_place(place, one, kind, name, number)}
        related = {one.id: one for one, _ in there if name in (one.unit, one.partner)}
        for candidate in here.values():
            self._attempts.setdefault(candidate.id, Attempts(candidate, values=self.values)).places += 1
        place = Place(test=self._test, number=number, call=name if kind == "call" else "")
        for pairing, paired in self._pairings(kind, actor, twice=bool(here)):
            tried = here if pairing.after is None else here | related
            still = [one for name in tried if (one := self._attempts.get(name)) and one.confirmed is None]
            if still and time.monotonic() < until:
                self._try(still, paired, pairing=pairing)
        for candidate in (here | related).values():
            if candidate.id in self._attempts:
                self.report(self._attempts[candidate.id].finding(place))
        if len(self._earlier) < MOST_EARLIER and any(map(self._is_undecided, related.values())):
            with suppress(ExplorerError):  # too many rows: then nothing is paired with it
                self._earlier.append(Earlier.note(actor, number=number, call=place.call))

    def _is_undecided(self, candidate: Candidate) -> bool:
        attempts = self._attempts.get(candidate.id)
        return attempts is None or attempts.confirmed is None

    def _pairings(self, kind: str, actor: Actor, *, twice: bool) -> Iterator[_Paired]:
        if twice:
            yield Pairing(kind=kind), with_itself(actor)
        for earlier in self._earlier:
            if bool(earlier.call) == (kind == "call"):
                pairing = Pairing(kind=kind, after=earlier.number, after_call=earlier.call)
                yield pairing, with_earlier(earlier, actor)
        if twice and isinstance(actor, RequestActor):
            yield Pairing(kind=kind, two_users=True), with_another_user(actor)

    def _try(self, wanted: Sequence[Attempts], paired: AbstractContextManager[Fork], *, pairing: Pairing) -> None:
        """Explore one pairing, and note what it says about each candidate."""
        begun = time.monotonic()
        try:
            with paired as fork:
                found = fork.explore(seconds=SECONDS_EACH)
                tables = {attempts.candidate.table for attempts in wanted}
                for attempts in wanted:
                    attempts.note(pairing, found, fork, tables=tables)
        except (ExplorerError, FinderError) as error:
            self._note_obstacle(wanted, pairing, str(error))
        except Exception as error:  # noqa: BLE001  # whatever it is, the test and the others are gone on with
            _raise_interrupt(error)
            self._note_obstacle(wanted, pairing, f"{type(error).__name__}: {error}")
        for attempts in wanted:
            attempts.seconds += time.monotonic() - begun

    def _note_obstacle(self, wanted: Sequence[Attempts], pairing: Pairing, reason: str) -> None:
        for attempts in wanted:
            attempts.note_obstacle(pairing, reason.partition("\n")[0])


def _raise_interrupt(error: BaseException) -> None:
    """Raise the interrupt if the error only followed from one."""
    cause = error.__context__
    while cause is not None:
        if isinstance(cause, KeyboardInterrupt):
            raise KeyboardInterrupt from error
        cause = cause.__context__


def _is_place(place: Witness, candidate: Candidate, kind: str, name: str, number: int) -> bool:
    """Whether the candidate was recorded here. Requests are numbered over all views, calls by function."""
    if kind == "request":
        return place.number == number
    # Calls that sent no statement were not recorded, so that it may be a later one.
    return name == candidate.unit and place.number <= number


def _obstacle(candidate: Candidate) -> str:
    """Return why no fork can show the candidate; empty if one may."""
    if candidate.kind == "effect-before-commit":
        return "what has left the process cannot be compared"
    return "" if candidate.unit_kind in {"request", "call"} else f"{candidate.unit} is the test itself"
