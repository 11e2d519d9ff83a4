"""The load: every strategy on fresh accounts, in laps that take turns, by the same workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from django_lockstep.lab.simulator.audit import Ledger, audit
from django_lockstep.lab.simulator.crew import Crew, Finish
from django_lockstep.lab.simulator.database import end_sessions
from django_lockstep.lab.simulator.desk import Task, idle
from django_lockstep.lab.simulator.measure import Load, Shift
from django_lockstep.lab.simulator.plan import Plan
from django_lockstep.lab.simulator.report import Row, row_of
from django_lockstep.lab.simulator.tally import Tally

__all__ = ["Contender", "Course", "Watch", "race", "turned"]

Item = TypeVar("Item")

Watch = Callable[[str], Callable[[], None] | None]
"""Called with the name of what is raced next; returns what is to be called every tenth of a second meanwhile."""


class Contender(Protocol):
    """A strategy as it enters the race."""

    @property
    def name(self) -> str:
        """What reports call it."""
        ...

    @property
    def safe(self) -> bool:
        """Whether it claims to lose no update."""
        ...

    @property
    def guarantee(self) -> str:
        """What it relies on, in a sentence."""
        ...

    @property
    def engine(self) -> str:
        """What runs it, where there is a choice; empty where there is none."""
        ...

    def open(self) -> None:
        """Make fresh accounts, committed."""
        ...

    def load(self, lap: int) -> Load:
        """Return what the workers do with these accounts in this lap."""
        ...

    def ledgers(self) -> Iterable[Ledger]:
        """Return these accounts as they are now."""
        ...


@dataclass(slots=True, kw_only=True)
class Course:
    """One contender's way through the race."""

    contender: Contender
    """Who."""
    plan: Plan
    """How it is loaded."""
    label: str
    """What the progress calls it."""
    finishes: list[Finish] = field(default_factory=list)
    """What became of its laps so far."""
    cut_short: bool = False
    """Whether it was interrupted."""

    def run(self, lap: int, *, crew: Crew, alias: str, watch: Watch | None) -> None:
        """Race one lap."""
        shifts = self._shifts(self.contender.load(lap), lap=lap, alias=alias)
        tasks: list[Task] = [*shifts, *[idle] * (crew.size - len(shifts))]
        finish = crew.race(tasks, watch=watch(self.label) if watch else None)
        end_sessions(alias, [casualty.session for casualty in finish.casualties])
        self.finishes.append(finish)
        self.cut_short = crew.interrupt.requested

    def row(self) -> Row | None:
        """Return what came of all laps, judged by what the database holds; None where nobody did anything."""
        laps: list[tuple[Tally | None, ...]] = [finish.results for finish in self.finishes]
        tallies = [tally for lap in laps for tally in lap if tally]
        casualties = [casualty for finish in self.finishes for casualty in finish.casualties]
        if not (tallies or casualties):
            return None
        known = not casualties and not any(tally.in_doubt for tally in tallies)
        return row_of(
            laps,
            audit(self.contender.ledgers(), told=Tally.merged(tallies).told if known else None),
            strategy=self.contender.name,
            safe=self.contender.safe,
            guarantee=self.contender.guarantee,
            engine=self.contender.engine,
            casualties=tuple(map(str, casualties)),
            cut_short=self.cut_short or len(self.finishes) < self.plan.laps,
        )

    def _shifts(self, load: Load, *, lap: int, alias: str) -> list[Shift]:
        """Return each worker's part of a lap."""
        return [
            Shift(
                load=load,
                worker=number,
                alias=alias,
                seconds=self.plan.seconds,
                operations=self.plan.operations_of(number, lap=lap),
                think_time=self.plan.think_time,
            )
            for number in range(self.plan.workers)
        ]


def race(
    courses: Sequence[Course], *, crew: Crew, alias: str, watch: Watch | None = None
) -> Iterator[tuple[Course, Row]]:
    """Race all laps, of each course one in turn; then yield the courses' rows, as far as they came.

    In every lap somebody else begins, so that none always follows the same one. The plans have the same number of laps,
    and the crew has as many workers as the largest needs. An interrupt ends the lap that is on.
    """
    for course in courses:
        if crew.interrupt.requested:
            return
        course.contender.open()
    laps = max(course.plan.laps for course in courses)
    for lap in range(laps):
        for course in turned(courses, lap * len(courses) // laps):
            if not crew.interrupt.requested:
                course.run(lap, crew=crew, alias=alias, watch=watch)
    for course in courses:
        if row := course.row():
            yield course, row


def turned(items: Sequence[Item], start: int) -> list[Item]:
    """Return the items from this place on, the first ones at the end."""
    return [*items[start:], *items[:start]]
