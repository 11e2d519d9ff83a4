"""Confirms candidates: where a test does what may race, schedules of it and a second one are really run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from itertools import chain
from typing import TypeVar

from django_lockstep.lab.explorer import Exploration, ExplorerError, Run
from django_lockstep.lab.finder.confirm.committed import committed_tests
from django_lockstep.lab.finder.confirm.forks import Fork, Point, Points, RequestActor
from django_lockstep.lab.finder.confirm.judging import Attempts, is_known
from django_lockstep.lab.finder.confirm.pairings import (
    Earlier,
    Pairing,
    Partners,
    partner_tests,
    with_another_user,
    with_earlier,
    with_itself,
)
from django_lockstep.lab.finder.confirm.reproduction import TestPlace, with_test_file
from django_lockstep.lab.finder.derive.candidates import Candidate, Witness
from django_lockstep.lab.finder.errors import FinderError
from django_lockstep.lab.finder.findings import Finding, Findings, Place
from django_lockstep.lab.finder.record.calls import intercept_calls
from django_lockstep.lab.finder.record.redaction import mask_message
from django_lockstep.lab.finder.record.requests import intercept

__all__ = ["Confirmation"]

MOST_WITNESSES = 4
"""Places at which a candidate is tried before it counts as not confirmed."""
MOST_EARLIER = 3
"""Requests or calls of a test with which later ones of it are paired."""
MOST_STATEMENTS = 720
"""Statements that the schedules of one candidate may send within `USUAL_BUDGET`, of a try for several its share: six
schedules of two requests that send sixty each. Not a time, so that another machine says the same."""
USUAL_BUDGET = 300.0
"""Seconds of ``--race-budget`` where it is not given; of a larger one the statements are a multiple, too."""
SECONDS_EACH = 20.0
"""Seconds that one fork may take, of whatever budget."""
_Paired = tuple[Pairing, AbstractContextManager[Fork], list[Candidate]]
"""What is raced, and the candidates that it may show."""
_Item = TypeVar("_Item")


class Confirmation:
    """Decides where to fork which tests, and adds what the forks say to the findings; runners of tests drive it."""

    def __init__(
        self,
        found: Findings,
        *,
        budget: float,
        only: Collection[str] | None = None,
        values: bool = False,
        on_finding: Callable[[Finding], None] = lambda finding: None,
    ) -> None:
        """Try what is undecided, of the ids ``only`` if given; findings show long strings only with ``values``."""
        self.budget = budget
        """Seconds that all forks together may take."""
        self._found = found
        self._candidates = [one for one in found.undecided() if only is None or one.id in only]
        self._values = values
        self._on_finding = on_finding
        self._spent = 0.0
        self._most_statements = MOST_STATEMENTS * max(1.0, budget / USUAL_BUDGET)
        self._attempts: dict[str, Attempts] = {}
        self._points = Points(self._reach)
        self._test = ""
        self._places: dict[str, TestPlace] = {}
        self._earlier: list[Earlier] = []
        self._partners = Partners()
        self._failures: dict[str, str] = {}
        # Held by the thread that forks: a live server's other threads go on without.
        self._forking = threading.Lock()

    # For the runner of the tests

    def choose(self, items: Iterable[_Item], name: Callable[[_Item], str]) -> list[_Item]:
        """Return the tests that show a candidate or do what it is raced with, those of the worst candidates first."""
        ordered = sorted(self._candidates, key=lambda candidate: candidate.rank)
        # Before what is raced comes what it is raced with.
        tests = [test for one in ordered for test in (*partner_tests(one), one.witnesses[0].test)]
        turns = max((len(candidate.witnesses) for candidate in ordered), default=0)
        tests += [one.witnesses[turn].test for turn in range(1, turns) for one in ordered if turn < len(one.witnesses)]
        order = {test: place for place, test in enumerate(dict.fromkeys(tests))}
        return sorted((item for item in items if name(item) in order), key=lambda item: order[name(item)])

    def is_wanted(self, test: str) -> bool:
        """Whether the test shows a candidate that is still open, and there is time left."""
        return self._spent < self.budget and any(True for _ in self._open(test))

    @contextmanager
    def installed(self) -> Iterator[Callable[[], None]]:
        """Have tests commit, and their requests seen; yields what closes the copies of a test that is interrupted."""
        with committed_tests() as close_copies, intercept(self._points.on_request):
            yield close_copies

    @contextmanager
    def running(self, test: str, place: TestPlace) -> Iterator[None]:
        """Fork while the body of this test runs."""
        self._places[test] = place
        self._begin(test)
        try:
            with intercept_calls(self._calls(), self._points.on_call):
                yield
        finally:
            self._begin("")

    def note_failure(self, test: str, message: str) -> None:
        """Note how a test failed, which may be why it did not come to what was to be forked."""
        self._failures.setdefault(test, self._masked(message))

    def close(self) -> None:
        """Report the candidates that no fork was made for."""
        for candidate in self._candidates:
            if candidate.id not in self._attempts:
                reason = _obstacle(candidate) or self._why_not_reached(candidate)
                self._add(Finding(candidate=candidate.id, verdict="not tried", reason=reason))

    # Which candidates

    def _begin(self, test: str) -> None:
        self._test = test
        self._points.restart()
        # Each holds a session with a copy of all tables; the next test starts from other rows.
        while self._earlier:
            self._earlier.pop().before.close()

    def _calls(self) -> set[str]:
        """Return the names of the functions whose calls in this test are wanted."""
        wanted = [candidate for candidate, _ in self._open(self._test) if candidate.unit_kind == "call"]
        partners = {candidate.partner for candidate in wanted if candidate.partner_kind == "call"}
        return {candidate.unit for candidate in wanted} | partners

    def _why_not_reached(self, candidate: Candidate) -> str:
        failed = (self._failures.get(witness.test) for witness in candidate.witnesses)
        if (message := next(filter(None, failed), None)) is not None:
            return f"its test failed before it came to it: {message}"
        return "the time was over" if self._spent >= self.budget else "its tests did not come to it"

    def _open(self, test: str) -> Iterator[tuple[Candidate, Witness]]:
        for candidate in self._candidates:
            if self._is_open(candidate):
                explored = self._attempts[candidate.id].explored if candidate.id in self._attempts else ()
                # Within one test each place is paired with those before it, so that none is like another.
                elsewhere = [witness for witness in explored if witness.test != test]
                for each in (*candidate.witnesses, *candidate.partner_witnesses):
                    if each.test == test and not any(map(each.shows_no_more_than, elsewhere)):
                        yield candidate, each

    def _is_open(self, candidate: Candidate) -> bool:
        attempts = self._attempts.get(candidate.id)
        if attempts is None:
            return not _obstacle(candidate)
        return not attempts.confirmed and not attempts.is_exhausted and attempts.places < MOST_WITNESSES

    # Forks

    def _reach(self, point: Point) -> None:
        """Fork here if that is wanted, and nothing else is being forked."""
        # Not waited for: the thread that forks may wait for an answer of this one.
        if self._spent >= self.budget or not self._forking.acquire(blocking=False):
            return
        begun = time.monotonic()
        changed: Iterable[str] = ()
        try:
            changed = self._fork(point, until=begun + self.budget - self._spent)
        finally:
            self._spent += time.monotonic() - begun
            self._report(changed, Place(test=self._test, number=point.number, call=point.call))
            self._forking.release()

    def _fork(self, point: Point, *, until: float) -> list[str]:
        """Fork if a candidate was recorded here, or may race with what a candidate did before, or in another test.

        Return the candidates about which more is known now.
        """
        there = [each for each in self._open(self._test) if each[0].unit_kind == point.kind]
        shown = [(one, place) for one, place in there if place in one.witnesses and _is_place(place, one, point)]
        here = {one.id: one for one, _ in shown}
        related = {one.id: one for one, _ in there if point.name in (one.unit, one.partner)}
        # Before the tries: one that ends in an error counts, or it would be made again at every place.
        for candidate in here.values():
            self._attempts_on(candidate).places += 1
        before = {name: self._attempts[name].schedules for name in here}
        changed = dict.fromkeys(here)
        pairings = self._pairings(point, here, [one for name, one in related.items() if name in self._attempts])
        found: dict[Pairing, Exploration] = {}
        # Those within the test first: a request of another one has to be moved here, and tried alone twice.
        for pairing, paired, candidates in chain(pairings, self._partners.pairings(self._test, point, there)):
            tried = [one for each in candidates if (one := self._attempts_on(each)).is_open_to(pairing)]
            # What has begun may go on for SECONDS_EACH; nothing begins when the budget is used up.
            if tried and time.monotonic() < until:
                self._try(tried, paired, pairing=pairing, found=found)
            changed |= dict.fromkeys(one.candidate.id for one in tried)
        for candidate, place in shown:
            attempts = self._attempts[candidate.id]
            if attempts.schedules > before[candidate.id]:
                attempts.explored.add(place)
        confirmed = {name for name, attempts in self._attempts.items() if attempts.confirmed is not None}
        if undecided := [one for name, one in related.items() if name not in confirmed]:
            self._keep(point, there, undecided)
        return list(changed)

    def _try(
        self,
        wanted: Sequence[Attempts],
        paired: AbstractContextManager[Fork],
        *,
        pairing: Pairing,
        found: dict[Pairing, Exploration],
    ) -> None:
        """Explore one pairing; note what it says about each candidate.

        ``found`` are the explorations of other pairings at the same place, to which it is added.
        """
        begun = time.monotonic()
        twice = found.get(replace(pairing, two_users=False)) if pairing.two_users else None
        try:
            with paired as fork:
                tables = self._tables_of({attempts.candidate.unit for attempts in wanted})
                before = next(reversed(found.values()), None)
                found[pairing] = fork.explore(
                    seconds=SECONDS_EACH,
                    # Around their writes alone: what all writes of a long request cost, no single candidate is worth.
                    tables={attempts.candidate.table for attempts in wanted},
                    stop=lambda run: self._is_enough(run, wanted, tables=tables, twice=twice),
                    before=before,
                )
                for attempts in wanted:
                    attempts.note(pairing, found[pairing], fork, tables=tables, twice=twice)
        except (ExplorerError, FinderError) as error:
            _note_obstacle(wanted, pairing, str(error))
        except Exception as error:  # noqa: BLE001  # whatever it is, the test and the others are gone on with
            _raise_interrupt(error)
            _note_obstacle(wanted, pairing, f"{type(error).__name__}: {self._masked(str(error))}")
        for attempts in wanted:
            attempts.seconds += (time.monotonic() - begun) / len(wanted)

    def _is_enough(
        self, run: Run, wanted: Sequence[Attempts], *, tables: Collection[str], twice: Exploration | None
    ) -> bool:
        """Whether nothing is to be learned behind this run of a search for these candidates, which it counts for."""
        for attempts in wanted:
            attempts.statements += len(run.schedule) / len(wanted)
        decided = (one.is_exhausted or one.is_shown_by(run, tables=tables) for one in wanted)
        return all(decided) or (twice is not None and not run.preemptions and is_known(run, twice))

    def _tables_of(self, units: Collection[str]) -> set[str]:
        """Return the tables of all candidates of these units: what is confirmed already is no other one's doing."""
        return {candidate.table for candidate in self._found.candidates.values() if candidate.unit in units}

    def _masked(self, message: str) -> str:
        return message if self._values else mask_message(message)

    def _attempts_on(self, candidate: Candidate) -> Attempts:
        return self._attempts.setdefault(
            candidate.id, Attempts(candidate, values=self._values, most_statements=self._most_statements)
        )

    def _report(self, candidates: Iterable[str], place: Place) -> None:
        for name in candidates:
            attempts = self._attempts[name]
            self._add(with_test_file(attempts.candidate, attempts.finding(place), self._places))

    def _add(self, finding: Finding) -> None:
        finding = replace(finding, spent=round(self._spent, 1))
        self._found.add(finding)
        self._on_finding(finding)

    def _keep(self, point: Point, shown: Sequence[tuple[Candidate, Witness]], related: Sequence[Candidate]) -> None:
        """Keep what later points, of this test and of others, may be paired with."""
        is_own = any(witness.test == self._test for candidate in related for witness in candidate.witnesses)
        if is_own and len(self._earlier) < MOST_EARLIER:
            with suppress(ExplorerError):  # too many rows: then nothing is paired with it
                self._earlier.append(Earlier.note(point))
        with suppress(Exception):  # whatever a request does that is sent once more: the test goes on
            self._partners.capture(self._test, point, shown)

    def _pairings(self, point: Point, here: Mapping[str, Candidate], related: Sequence[Candidate]) -> Iterator[_Paired]:
        actor, candidates = point.actor, list(here.values())
        if here:
            yield Pairing(kind=point.kind), with_itself(actor), candidates
        for earlier in self._earlier:
            if earlier.point.kind == point.kind:
                pairing = Pairing(kind=point.kind, after=earlier.point.number, after_call=earlier.point.call)
                also = [one for one in related if one.id not in here]
                yield pairing, with_earlier(earlier, actor), candidates + also
        if here and isinstance(actor, RequestActor):
            yield Pairing(kind=point.kind, two_users=True), with_another_user(actor), candidates


def _note_obstacle(wanted: Sequence[Attempts], pairing: Pairing, reason: str) -> None:
    for attempts in wanted:
        # The first line: the server's details would show values of rows.
        attempts.note_obstacle(pairing, reason.partition("\n")[0])


def _raise_interrupt(error: BaseException) -> None:
    """Raise the interrupt if the error only followed from one."""
    cause = error.__context__
    while cause is not None:
        if isinstance(cause, KeyboardInterrupt):
            raise KeyboardInterrupt from error
        cause = cause.__context__


def _is_place(place: Witness, candidate: Candidate, point: Point) -> bool:
    """Whether the candidate was recorded here."""
    if not point.call:
        return place.number == point.number
    # Calls that sent no statement were not recorded, so that it may be a later one.
    return point.call == candidate.unit and place.number <= point.number


def _obstacle(candidate: Candidate) -> str:
    """Return why no fork can show the candidate; empty if one may."""
    if candidate.kind == "effect-before-commit":
        return "what has left the process cannot be compared"
    return "" if candidate.unit_kind in {"request", "call"} else "asynchronous requests are not raced"
