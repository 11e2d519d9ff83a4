"""The load: every strategy in turn on fresh accounts, by the same workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from accounts.lab.simulator.audit import Ledger, audit
from accounts.lab.simulator.crew import Crew, Finish
from accounts.lab.simulator.database import end_sessions
from accounts.lab.simulator.measure import Load, Shift
from accounts.lab.simulator.plan import Plan
from accounts.lab.simulator.report import Row, row_of
from accounts.lab.simulator.tally import Tally

__all__ = ["Contender", "Watch", "race"]

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

    def open(self) -> Load:
        """Make fresh accounts, committed, and return what the workers do with them."""
        ...

    def ledgers(self) -> Iterable[Ledger]:
        """Return these accounts as they are now."""
        ...


def race(
    contenders: Sequence[Contender], *, plan: Plan, crew: Crew, alias: str, watch: Watch | None = None
) -> Iterator[Row]:
    """Yield each strategy's row; stop after the one in which the crew was interrupted."""
    for contender in contenders:
        if crew.interrupt.requested:
            return
        load = contender.open()
        finish = crew.race(shifts(load, plan=plan, alias=alias), watch=watch(contender.name) if watch else None)
        end_sessions(alias, [casualty.session for casualty in finish.casualties])
        tallies = [result for result in finish.results if result is not None]
        if tallies or finish.casualties:
            yield _judged(contender, finish, tallies=tallies, cut_short=crew.interrupt.requested)


def shifts(load: Load, *, plan: Plan, alias: str) -> list[Shift]:
    """Return each worker's part of the load."""
    return [
        Shift(
            load=load,
            worker=number,
            alias=alias,
            seconds=plan.duration,
            operations=plan.operations_of(number),
            think_time=plan.think_time,
        )
        for number in range(plan.workers)
    ]


def _judged(contender: Contender, finish: Finish, *, tallies: list[Tally], cut_short: bool) -> Row:
    known = not finish.casualties and not any(tally.in_doubt for tally in tallies)
    verdict = audit(contender.ledgers(), told=Tally.merged(tallies).told if known else None)
    return row_of(
        tallies,
        verdict,
        strategy=contender.name,
        safe=contender.safe,
        guarantee=contender.guarantee,
        casualties=tuple(str(casualty) for casualty in finish.casualties),
        cut_short=cut_short,
    )
