"""What explorations say about one candidate: which wrong ends confirm it."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from django_lockstep.lab.explorer import Exploration, ExplorerError, Outcome, Run, svg, timeline
from django_lockstep.lab.explorer.render.explanations import find_explanation
from django_lockstep.lab.explorer.render.reports import run_data
from django_lockstep.lab.explorer.results import RunEnding
from django_lockstep.lab.finder.confirm.forks import Fork
from django_lockstep.lab.finder.confirm.pairings import Pairing
from django_lockstep.lab.finder.confirm.remedies import ends_as, try_lock, try_patches
from django_lockstep.lab.finder.consequences import CONSEQUENCES, consequence_of, subjects_of
from django_lockstep.lab.finder.derive.candidates import Candidate, Witness
from django_lockstep.lab.finder.findings import MORE_LEFT, Finding, Opponent, Place, Verdict
from django_lockstep.lab.finder.record.redaction import hide_strings, redact
from django_lockstep.lab.wording import gettext, joined, listed, ngettext

_Try = tuple[Place | None, Pairing]
"""Where something is raced, and with what; with a request of another test it is tried once, wherever."""
_ANYWHERE = Place()
_SKIPS = re.compile(r"\bSKIP\s+LOCKED\b", re.IGNORECASE)


@dataclass(slots=True)
class Attempts:
    """All pairings in which a candidate was explored."""

    candidate: Candidate
    values: bool = False
    """Whether findings may show long strings."""
    most_statements: float = math.inf
    """How many statements its schedules may send by the end of this round."""
    statements: float = 0.0
    """How many they have sent; of a try for several candidates its share."""
    tests: set[str] = field(default_factory=set)
    """Tests in which it was tried."""
    again: set[str] = field(default_factory=set)
    """Tests in which the last round was cut off, so that this one goes on there."""
    cut_off: set[str] = field(default_factory=set)
    """Tests in which this round did not try all that it could."""
    reported: Place | None = None
    """The place of the last finding, as long as more may follow."""
    confirmed: tuple[Pairing, Outcome, Run] | None = None
    """The pairing that shows it, and how: of those that were tried the worst."""
    actors: tuple[str, ...] = ()
    """What the actors do that show it."""
    is_news: bool = False
    """Whether that was found since the last report."""
    seconds: float = 0.0
    """Time that the tries took; of a try for several candidates its share."""
    explored: set[Witness] = field(default_factory=set)
    """Where schedules were run."""
    _schedules: dict[_Try, int] = field(default_factory=dict)
    _complete: set[_Try] = field(default_factory=set)
    _obstacles: dict[str, str] = field(default_factory=dict)
    _elsewhere: set[str] = field(default_factory=set)
    _passed_over: bool = False
    _remedy: str = ""
    _patch: str = ""

    def note(
        self,
        pairing: Pairing,
        exploration: Exploration,
        fork: Fork,
        *,
        taken: set[str],
        twice: Exploration | None = None,
        place: Place = _ANYWHERE,
    ) -> None:
        """Note an exploration of a fork, which must still be open: its runs may be repeated.

        ``taken`` are the subjects of all candidates that were tried here or are confirmed of the same unit. A wrong end
        is held against the candidate if its subject is wrong, or if nothing that is wrong is anyone's: what follows
        from a race may be in any table, or in the answers alone; the first candidate, which is the worst, then accounts
        for it, and for the answers. It is added to ``taken``. ``twice`` is an exploration of the same by one user.
        """
        # A schedule that cannot be repeated proves nothing.
        if exploration.verdict in {"nondeterministic", "stuck"}:
            self.note_obstacle(pairing, exploration.reason, place=place)
            return
        is_single = exploration.schedules == 1 and exploration.left
        if twice is not None and is_single and is_known(exploration.outcomes[0], twice):
            self.note_obstacle(pairing, _ONE_USER, place=place)
            return
        # A further round begins with the schedules of the last one.
        key = _try(place, pairing)
        self._schedules[key] = max(exploration.schedules, self._schedules.get(key, 0))
        # The worst first: the report shows one.
        confirmed = self.confirmed[1] if self.confirmed else None
        for outcome in sorted((outcome for outcome in exploration.outcomes if not outcome.holds), key=_badness):
            if confirmed and _badness(outcome)[0] >= _badness(confirmed)[0]:
                break
            if (run := self._run_that_shows(outcome, exploration, fork, taken=taken)) is not None:
                ends = ((end.state, end.results) for end in exploration.outcomes)
                shown = (outcome, run) if self.values else redact(outcome, run, ends=ends)
                self.confirmed = pairing, *shown
                self.actors = fork.titles
                taken |= subjects_taken(self.candidate, outcome.differences)
                self.is_news = True
                self._patch = self._remedy = ""
                # Against a cycle, another lock first only moves it. What cannot be tried has not helped.
                with suppress(ExplorerError):
                    if self.candidate.kind != "lock-order":
                        self._patch, self._remedy = try_patches(self.candidate, run, fork, exploration=exploration)
                        self._remedy = self._remedy or try_lock(self.candidate, run, fork, exploration=exploration)
                break
        if exploration.left:
            self.cut_off.add(place.test)
        else:
            self._complete.add(key)

    def is_shown_by(self, run: Run, *, taken: Collection[str]) -> bool:
        """Whether a wrong run shows it in the data, so that no other need be looked for; ``taken`` as in `note`."""
        is_own = self._is_own(subjects_of(run.differences), taken)
        return is_own and self._is_in_data(run) and not _passes_over_rows(run)

    @property
    def is_settled(self) -> bool:
        """Whether it is confirmed in the data; after answers or errors alone another pairing may show worse."""
        return self.confirmed is not None and self._is_in_data(self.confirmed[1])

    def note_obstacle(self, pairing: Pairing, reason: str, *, place: Place = _ANYWHERE) -> None:
        """Note why a pairing could not be explored."""
        self._complete.add((place, pairing))
        # The first line: the server's details would show values of rows.
        reason = reason.partition("\n")[0]
        self._obstacles[str(pairing)] = reason if self.values else hide_strings(reason)

    def is_open_to(self, pairing: Pairing, *, place: Place = _ANYWHERE) -> bool:
        """Whether the pairing may still show it here."""
        return not self.is_settled and self._complete.isdisjoint([(place, pairing), _try(place, pairing)])

    def begin_round(self, growth: int) -> None:
        """Go on with what was cut off, with so many times the share."""
        self.most_statements = max(self.most_statements, self.statements) * growth
        self.again, self.cut_off = self.cut_off, set()

    @property
    def is_exhausted(self) -> bool:
        """Whether its schedules have sent as many statements as they may."""
        return self.statements >= self.most_statements

    @property
    def schedules(self) -> int:
        """How many were run."""
        return sum(self._schedules.values())

    def finding(self, place: Place, *, is_left: bool = False) -> Finding:
        """Return what is known so far; ``is_left`` says that more can be tried."""
        common: dict[str, Any] = {**asdict(place), "candidate": self.candidate}
        common |= {"schedules": self.schedules, "seconds": round(self.seconds, 3)}
        common["obstacles"] = tuple(joined([str(pairing), why], ": ") for pairing, why in self._obstacles.items())
        if self.confirmed is None:
            tried: Verdict = "not decided" if is_left else "not confirmed"
            nots = [gettext("not {what}", what=obstacle) for obstacle in common["obstacles"]]
            reason = self._reason(is_left) or joined(nots, "; ")
            return Finding(verdict=tried if self.schedules else "not tried", reason=reason, **common)
        pairing, outcome, run = self.confirmed
        breaking, write = find_explanation(run).step, self.candidate.write
        return Finding(
            verdict="confirmed",
            reason=outcome.reason,
            fault=(breaking.source if breaking else "") or str(write.site or self.candidate.id),
            pairing=str(pairing),
            actors=self.actors,
            schedule=outcome.schedule,
            differences=outcome.differences,
            consequence=consequence_of(outcome.differences),
            remedy=self._remedy,
            patch=self._patch,
            run=run_data(run),
            timeline=timeline(run),
            drawing=svg(run, ident=f"race-{self.candidate.id}", styled=False),
            **{field.name: getattr(pairing, field.name) for field in fields(Opponent)},
            **common,
        )

    def _reason(self, is_left: bool) -> str:
        totals: Counter[str] = Counter()
        for (_, pairing), count in self._schedules.items():
            totals[str(pairing)] += count
        counts = [
            ngettext("{number} schedule ({pairing})", "{number} schedules ({pairing})", count, pairing=pairing)
            for pairing, count in totals.items()
            if count
        ]
        said = []
        if counts:
            table = self.candidate.table
            said.append(
                gettext("{schedules} leave in {table} what serial orders do", schedules=listed(counts), table=table)
            )
        if self._elsewhere:
            said.append(
                gettext("what differs is another finding: {subjects}", subjects=listed(sorted(self._elsewhere)))
            )
        said += [_PASSED_OVER] if self._passed_over else []
        said += [MORE_LEFT] if is_left and counts else []
        return joined(said, "; ")

    def _is_in_data(self, end: RunEnding) -> bool:
        subjects = subjects_of(end.differences)
        return subject_of(self.candidate) in subjects or subjects.isdisjoint(CONSEQUENCES)

    def _is_own(self, subjects: AbstractSet[str], taken: Collection[str]) -> bool:
        return subject_of(self.candidate) in subjects or (bool(subjects) and subjects.isdisjoint(taken))

    def _run_that_shows(
        self, outcome: Outcome, exploration: Exploration, fork: Fork, *, taken: Collection[str]
    ) -> Run | None:
        """Return a run that ends so, if that shows the candidate."""
        subjects, run = subjects_of(outcome.differences), exploration.failure
        is_refused = "server errors" in subjects
        # Of the other outcomes, the exploration has kept only the schedules.
        if (is_refused or self._is_own(subjects, taken)) and (run is None or run.schedule != outcome.schedule):
            run = fork.replay(outcome.schedule)
        # What the database has refused, such as the second row of a key, is in no table.
        refused = [step.sql for step in run.steps if step.sqlstate] if is_refused and run else []
        subjects = {table for table in taken if any(f'"{table}"' in sql for sql in refused)} or subjects
        if not self._is_own(subjects, taken):
            self._elsewhere |= subjects
            return None
        self._passed_over |= (is_passed_over := run is not None and _passes_over_rows(run))
        return None if is_passed_over else run


def subject_of(candidate: Candidate) -> str:
    """Return what of a wrong end is always the candidate's: its table, or deadlocks."""
    return "deadlocks" if candidate.kind == "lock-order" else candidate.table


def subjects_taken(candidate: Candidate, differences: Collection[str]) -> set[str]:
    """Return what of further wrong ends of its unit a confirmed candidate accounts for: all that may follow from it."""
    return {subject_of(candidate), *subjects_of(differences), "other answers", "success instead of not found"}


def _try(place: Place, pairing: Pairing) -> _Try:
    return (None if pairing.partner else place, pairing)


def is_known(end: RunEnding, exploration: Exploration) -> bool:
    """Whether a serial end of two users' requests is one of the same user's two, so that they need not be raced.

    They have then written the same rows: nothing in these depends on the user. But where the second one is refused,
    each user may be for a reason of their own.
    """
    is_refused = any(result.startswith("status 4") for result in end.results.values())
    return end.holds and not is_refused and ends_as(end, exploration)


_ONE_USER = gettext("one after the other they leave the same rows as one user's two do")
_PASSED_OVER = gettext(
    "ends with rows that SKIP LOCKED passed over, because another transaction had locked them, are no serial order's "
    "and prove nothing"
)


def _passes_over_rows(run: Run) -> bool:
    """Whether a statement with SKIP LOCKED met an open transaction of another actor.

    It then leaves to later what a serial order would have done at once: that is what a queue asks for.
    """
    for step in (step for step in run.steps if _SKIPS.search(step.sql)):
        others = [peer for peer in run.steps if peer.actor != step.actor and peer.transaction is not None]
        before = {(peer.actor, peer.transaction) for peer in others if peer.begun < step.begun}
        if any((peer.actor, peer.transaction) in before for peer in others if peer.ended > step.begun):
            return True
    return False


def _badness(outcome: Outcome) -> tuple[int, int, str]:
    worst = (*CONSEQUENCES, "").index(consequence_of(outcome.differences))
    return worst, len(outcome.schedule), outcome.schedule
