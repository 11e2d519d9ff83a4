"""Confirms candidates: where a test does what may race, schedules of it and a second one are really run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from itertools import chain, zip_longest
from typing import TypeVar

from django_lockstep.lab.explorer import Exploration, ExplorerError, Run
from django_lockstep.lab.explorer.effects.statement_text import read_statement
from django_lockstep.lab.finder.confirm.forks import Fork, Point, Points, RequestActor
from django_lockstep.lab.finder.confirm.judging import Attempts, is_known, subject_of, subjects_taken
from django_lockstep.lab.finder.confirm.pairings import (
    AGAINST,
    Earlier,
    Pairing,
    Partners,
    copy_databases,
    partner_tests,
    with_earlier,
)
from django_lockstep.lab.finder.confirm.witnesses import TestPlace, write_test_file
from django_lockstep.lab.finder.derive.candidates import Candidate, Witness
from django_lockstep.lab.finder.errors import FinderError
from django_lockstep.lab.finder.findings import (
    NOT_REACHED,
    TIME_OVER,
    Against,
    Finding,
    Findings,
    Place,
)
from django_lockstep.lab.finder.record.redaction import mask_message
from django_lockstep.lab.wording import gettext as _

MOST_TESTS = 4
"""Tests in which a candidate is tried before it counts as not confirmed."""
MOST_EARLIER = 3
"""Requests or calls of a test with which later ones of it are paired."""
MOST_STATEMENTS = 720
"""Statements that the schedules of one candidate may send in the first round, of a try for several its share: six
schedules of two requests that send sixty each. Not a time, so that another machine says the same."""
SECONDS_EACH = 20.0
"""Seconds that one fork may take in the first round."""
GROWTH = 4
"""How many times more that is in each further round, which begins its tries again: so little is run twice."""
_Paired = tuple[Pairing, AbstractContextManager[Fork], list[Candidate]]
"""What is raced, and the candidates that it may show."""
_Item = TypeVar("_Item")


class Confirmation:
    """Decides where to fork which tests, and adds what the forks say to the findings; runners of tests drive it."""

    def __init__(self, findings: Findings, *, budget: float, values: bool = False) -> None:
        """Try what is undecided of the findings' share; they show long strings only with ``values``."""
        self.budget = budget
        """Seconds that all forks together may take."""
        self._findings = findings
        self.mark_running = findings.mark_running
        self._candidates = findings.undecided()
        self._round = self._candidates
        """Those of this round."""
        self._chosen: set[str] = set()
        self._passed: set[str] = set()
        """Tests of this round that were run, or needed not be."""
        self._tries = 0
        self._seconds_each = SECONDS_EACH
        self._values = values
        self._spent = findings.spent
        self._attempts: dict[str, Attempts] = {}
        self._points = Points(self._reach)
        self._test = ""
        self._places: dict[str, TestPlace] = {}
        self._earlier: list[Earlier] = []
        self._partners = Partners()
        self._failures = dict.fromkeys(findings.deaths, "the session died in it")
        # Held by the thread that forks: a live server's other threads go on without.
        self._forking = threading.Lock()

    # For the runner of the tests

    def choose(self, items: Iterable[_Item], name: Callable[[_Item], str]) -> list[_Item]:
        """Return the tests that show a candidate or do what it is raced with, those of the worst candidates first."""
        ordered = sorted(self._candidates, key=lambda candidate: candidate.rank)
        # Before what is raced comes what it is raced with.
        tests = [test for candidate in ordered for test in (*partner_tests(candidate), candidate.witnesses[0].test)]
        for turn in zip_longest(*(candidate.witnesses[1:] for candidate in ordered)):
            tests += [witness.test for witness in turn if witness]
        order = {test: place for place, test in enumerate(dict.fromkeys(tests)) if test not in self._findings.deaths}
        chosen = sorted((item for item in items if name(item) in order), key=lambda item: order[name(item)])
        self._chosen = set(map(name, chosen))
        return chosen

    def is_wanted(self, test: str) -> bool:
        """Whether the test shows a candidate that is still open, and there is time left."""
        if self._is_over:
            return False
        self._passed.add(test)
        return any(True for _ in self._open(test))

    def rounds(self, items: Sequence[_Item], name: Callable[[_Item], str]) -> Iterator[Sequence[_Item]]:
        """Yield the chosen tests; then, while there is time, those in which larger shares go on with what is left."""
        yield items
        # A round in which no test came to a place of its own would be followed by others like it.
        while self._tries and not self._is_over:
            left = [attempts for attempts in self._attempts.values() if self._is_left(attempts)]
            self._round = [attempts.candidate for attempts in left]
            for attempts in left:
                attempts.begin_round(GROWTH)
            self._passed.clear()
            self._tries = 0
            self._seconds_each *= GROWTH
            yield [item for item in items if any(True for _ in self._open(name(item)))]
        # Where the last round came to nothing that is open, no further one would.
        for attempts in self._attempts.values():
            if attempts.reported and not self._is_over:
                self._add(attempts.finding(attempts.reported))
                attempts.reported = None

    @property
    def _is_over(self) -> bool:
        return self._spent >= self.budget

    @contextmanager
    def running(self, test: str, place: TestPlace) -> Iterator[None]:
        """Fork while the body of this test runs."""
        self._places[test] = place
        if not self._is_over:
            self._passed.add(test)
        self._begin(test)
        try:
            with self._points.watched(self._calls()):
                yield
        finally:
            self._begin("")
            self._settle(test)

    def note_failure(self, test: str, message: str) -> None:
        """Note how a test failed, which may be why it did not come to what was to be forked."""
        self._failures.setdefault(test, self._masked(message))

    def close(self) -> None:
        """Report the candidates that no fork was made for."""
        before = {it.candidate.id for it in self._findings.in_order() if it.verdict == "not decided"}
        for candidate in self._candidates:
            if candidate.id not in {*self._attempts, *before}:
                failed = (self._failures.get(witness.test) for witness in candidate.witnesses)
                message = next(
                    (_("its test failed before it came to it: {message}", message=text) for text in failed if text), ""
                )
                reason = _obstacle(candidate) or message or (TIME_OVER if self._is_over else NOT_REACHED)
                self._add(Finding(candidate=candidate, verdict="not tried", reason=reason))

    # Which candidates

    def _begin(self, test: str) -> None:
        self._test = test
        self._points.restart()
        # Each holds a session with a copy of all tables; the next test starts from other rows.
        while self._earlier:
            self._earlier.pop().before.close()

    def _calls(self) -> set[str]:
        """Return the names of the functions whose calls in this test are wanted."""
        candidates = [candidate for candidate, _ in self._open(self._test)]
        partners = {peer.unit for candidate in candidates for peer in candidate.partners if peer.kind == "call"}
        return {candidate.unit for candidate in candidates if candidate.unit_kind == "call"} | partners

    def _open(self, test: str) -> Iterator[tuple[Candidate, Witness]]:
        for candidate in self._round:
            attempts = self._attempts.get(candidate.id)
            if _obstacle(candidate) or (attempts and (attempts.is_settled or attempts.is_exhausted)):
                continue
            for witness in candidate.places:
                if witness.test == test and (not attempts or test in attempts.again or self._is_new(attempts, witness)):
                    yield candidate, witness

    def _is_new(self, attempts: Attempts, witness: Witness) -> bool:
        """Whether the candidate may be tried in the test of the witness, too, and that may show something new."""
        # Within one test each place is paired with those before it, so that none is like another.
        tests = attempts.tests - {self._test}
        elsewhere = [earlier for earlier in attempts.explored if earlier.test in tests]
        is_further = len(tests) < MOST_TESTS and witness.test not in tests
        return is_further and not any(map(witness.shows_no_more_than, elsewhere))

    def _is_left(self, attempts: Attempts) -> bool:
        """Whether something of the candidate was not tried that a further round could try."""
        stopped = self._is_over or attempts.is_exhausted
        tests = {witness.test for witness in attempts.candidate.places if self._is_new(attempts, witness)}
        tests = (tests | attempts.again) & self._chosen
        return not attempts.confirmed and bool(attempts.cut_off or (tests if stopped else tests - self._passed))

    def _settle(self, test: str) -> None:
        """Note at a test's end what was cut off in it, and report the candidates of which nothing is left."""
        for attempts in self._attempts.values():
            if test in attempts.tests | attempts.again and (self._is_over or attempts.is_exhausted):
                attempts.cut_off.add(test)
            if attempts.reported and not self._is_left(attempts):
                self._add(attempts.finding(attempts.reported))
                attempts.reported = None

    # Forks

    def _reach(self, point: Point) -> Callable[[], None] | None:
        """Fork here if that is wanted, and nothing else is being forked; return what is to be noted behind it."""
        # Not waited for: the thread that forks may wait for an answer of this one.
        if self._is_over or not self._forking.acquire(blocking=False):
            return None
        begun = time.monotonic()
        place = Place(test=self._test, number=point.number, call=point.call)
        changed: Iterable[str] = ()
        try:
            changed = self._fork(point, place, until=begun + self.budget - self._spent)
        finally:
            self._spent += time.monotonic() - begun
            self._report(changed, place)
            self._forking.release()
        return next((earlier.before.note_new for earlier in self._earlier if earlier.point is point), None)

    def _fork(self, point: Point, place: Place, *, until: float) -> list[str]:
        """Fork if a candidate was recorded here, or may race with what a candidate did before, or in another test.

        Return the candidates about which more is known now.
        """
        there = list(self._open(self._test))
        shown = [
            (candidate, witness)
            for candidate, witness in there
            if witness in candidate.witnesses and point.is_of(candidate.unit, witness, kind=candidate.unit_kind)
        ]
        here = {candidate.id: candidate for candidate, _ in shown}
        related = {candidate.id: candidate for candidate, _ in there if point.name in candidate.names}
        # Before the tries: one that ends in an error counts, or it would be made again at every place.
        for candidate in here.values():
            self._attempts_on(candidate).tests.add(self._test)
        before = {name: self._attempts[name].schedules for name in here}
        changed = dict.fromkeys(here)
        tried = [candidate for name, candidate in related.items() if name in self._attempts]
        pairings = self._pairings(point, here, tried)
        explorations: dict[Pairing, Exploration] = {}
        # Those within the test first: a request of another one has to be moved here, and tried alone twice.
        for pairing, paired, candidates in chain(pairings, self._partners.pairings(self._test, point, there)):
            attempts_here = map(self._attempts_on, candidates)
            open_attempts = [attempts for attempts in attempts_here if attempts.is_open_to(pairing, place=place)]
            seconds = until - time.monotonic()
            self._try(open_attempts, paired, pairing=pairing, explorations=explorations, place=place, seconds=seconds)
            changed |= dict.fromkeys(attempts.candidate.id for attempts in open_attempts)
        for candidate, witness in shown:
            attempts = self._attempts[candidate.id]
            if attempts.schedules > before[candidate.id]:
                attempts.explored.add(witness)
        settled = {name for name, attempts in self._attempts.items() if attempts.is_settled}
        if undecided := [candidate for name, candidate in related.items() if name not in settled]:
            self._keep(point, there, undecided)
        return list(changed)

    def _try(
        self,
        open_attempts: Sequence[Attempts],
        paired: AbstractContextManager[Fork],
        *,
        pairing: Pairing,
        explorations: dict[Pairing, Exploration],
        place: Place,
        seconds: float = SECONDS_EACH,
    ) -> None:
        """Explore one pairing, and note what it says about each candidate whose share is not used up.

        ``seconds`` are left of the budget: nothing begins without, and what begins may take longer. ``explorations``
        are those of other pairings at the same place, to which this one is added.
        """
        for attempts in open_attempts:
            if seconds <= 0 or attempts.is_exhausted:
                attempts.cut_off.add(place.test)
        open_attempts = [attempts for attempts in open_attempts if seconds > 0 and not attempts.is_exhausted]
        if not open_attempts:
            return
        self._tries += 1
        begun, obstacle = time.monotonic(), None
        twice = explorations.get(replace(pairing, against="")) if pairing.against == "another user" else None
        try:
            with paired as fork:
                taken = self._taken(open_attempts)
                before = next(reversed(explorations.values()), None)
                explorations[pairing] = fork.explore(
                    seconds=max(SECONDS_EACH, min(seconds, self._seconds_each)),
                    # Around their writes alone: what all writes of a long request cost, no single candidate is worth.
                    tables={attempts.candidate.table for attempts in open_attempts},
                    stop=lambda run: self._is_enough(run, open_attempts, taken=taken, twice=twice),
                    before=before,
                )
                for attempts in open_attempts:
                    attempts.note(pairing, explorations[pairing], fork, taken=taken, twice=twice, place=place)
        except Exception as error:  # noqa: BLE001  # whatever it is, the test and the others are gone on with
            _raise_interrupt(error)
            is_ours = isinstance(error, ExplorerError | FinderError)
            obstacle = str(error) if is_ours else f"{type(error).__name__}: {self._masked(str(error))}"
        for attempts in open_attempts:
            attempts.seconds += (time.monotonic() - begun) / len(open_attempts)
            if obstacle is not None:
                attempts.note_obstacle(pairing, obstacle, place=place)

    def _is_enough(
        self, run: Run, open_attempts: Sequence[Attempts], *, taken: Collection[str], twice: Exploration | None
    ) -> bool:
        """Whether nothing is to be learned behind this run of a search for these candidates, which it counts for."""
        for attempts in open_attempts:
            attempts.statements += len(run.schedule) / len(open_attempts)
        decided = (attempts.is_exhausted or attempts.is_shown_by(run, taken=taken) for attempts in open_attempts)
        return all(decided) or (twice is not None and not run.preemptions and is_known(run, twice))

    def _taken(self, open_attempts: Sequence[Attempts]) -> set[str]:
        """Return the subjects of these candidates, and what is confirmed of their units: that is no other one's."""
        units = {attempts.candidate.unit for attempts in open_attempts}
        taken = {subject_of(attempts.candidate) for attempts in open_attempts}
        for finding in self._findings.in_order():
            if finding.verdict == "confirmed" and finding.candidate.unit in units:
                taken |= subjects_taken(finding.candidate, finding.differences)
        return taken

    def _masked(self, message: str) -> str:
        return message if self._values else mask_message(message)

    def _attempts_on(self, candidate: Candidate) -> Attempts:
        return self._attempts.setdefault(
            candidate.id, Attempts(candidate, values=self._values, most_statements=MOST_STATEMENTS)
        )

    def _report(self, candidates: Iterable[str], place: Place) -> None:
        for name in candidates:
            attempts = self._attempts[name]
            attempts.reported = None if attempts.confirmed else place
            if attempts.is_news or not attempts.confirmed:
                # Until the test's end there may be more to try.
                finding = attempts.finding(place, is_left=True)
                self._add(replace(finding, test_file=write_test_file(finding, self._places)))
            attempts.is_news = False

    def _add(self, finding: Finding) -> None:
        # Without a reason, there was no try at its place.
        reason = finding.reason or (TIME_OVER if self._is_over else _("its partner was not reached there"))
        self._findings.add(replace(finding, reason=reason, spent=round(self._spent, 1)))

    def _keep(self, point: Point, shown: Sequence[tuple[Candidate, Witness]], related: Sequence[Candidate]) -> None:
        """Keep what later points, of this test and of others, may be paired with."""
        is_own = any(witness.test == self._test for candidate in related for witness in candidate.witnesses)
        if is_own and len(self._earlier) < MOST_EARLIER:
            with suppress(ExplorerError):  # too many rows: then nothing is paired with it
                self._earlier.append(Earlier(point, copy_databases()))
        with suppress(Exception):  # whatever a request does that is sent once more: the test goes on
            self._partners.capture(self._test, point, shown)

    def _pairings(self, point: Point, here: Mapping[str, Candidate], related: Sequence[Candidate]) -> Iterator[_Paired]:
        actor, variants = point.actor, list[_Paired]()
        candidates = [candidate for candidate in here.values() if candidate.may_race(point.name, point.name)]
        for against, variant in AGAINST.items():
            shown = [candidate for candidate in candidates if _may_show_against(candidate, against)]
            if shown and (variant.of_calls or isinstance(actor, RequestActor)):
                variants.append((Pairing(kind=point.kind, against=against), variant.pair(actor), shown))
        yield from variants[:1]
        either = {**here, **{candidate.id: candidate for candidate in related}}.values()
        for earlier in self._earlier:
            pairing = Pairing(kind=point.kind, after=earlier.point.number, after_call=earlier.point.call)
            shown = [candidate for candidate in either if candidate.may_race(earlier.point.name, point.name)]
            yield pairing, with_earlier(earlier, actor), shown
        yield from variants[1:]


def _may_show_against(candidate: Candidate, against: Against) -> bool:
    if against == "a lower limit" and read_statement(candidate.read.sql).looks != "aggregate":
        return False
    return candidate.kind in AGAINST[against].kinds


def _raise_interrupt(error: BaseException) -> None:
    """Raise the interrupt if the error only followed from one."""
    cause = error.__context__
    while cause is not None:
        if isinstance(cause, KeyboardInterrupt):
            raise KeyboardInterrupt from error
        cause = cause.__context__


def _obstacle(candidate: Candidate) -> str:
    """Return why no fork can show the candidate; empty if one may."""
    return "" if candidate.unit_kind in {"request", "call"} else _("asynchronous requests are not raced")
