"""The load: each strategy on fresh accounts, in rounds that alternate between the strategies, by the same workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from django_lockstep.lab.simulator.audit import AuditedAccount, Balances, audit
from django_lockstep.lab.simulator.channel import Task, idle
from django_lockstep.lab.simulator.database import end_sessions
from django_lockstep.lab.simulator.interrupt import Interrupt
from django_lockstep.lab.simulator.load_plan import LoadPlan
from django_lockstep.lab.simulator.load_task import Load, LoadTask
from django_lockstep.lab.simulator.pool import PoolResult
from django_lockstep.lab.simulator.report import LoadRow, build_row
from django_lockstep.lab.simulator.tally import Tally

__all__ = ["MeasuredStrategy", "Pool", "ProgressHook", "Trial", "rotate", "run_trials"]

Item = TypeVar("Item")

ProgressHook = Callable[[str], Callable[[], None] | None]
"""Called with the name of what runs next; returns what is to be called every tenth of a second while it runs."""


class Pool(Protocol):
    """Workers, here or elsewhere."""

    interrupt: Interrupt
    """What ends a run early."""
    size: int
    """How many there are."""

    @property
    def completed(self) -> int:
        """How many operations they have completed."""
        ...

    def run(self, tasks: Sequence[Task], *, on_tick: Callable[[], None] | None = None) -> PoolResult:
        """Have each of them do one task, and return what came of all."""
        ...


class MeasuredStrategy(Protocol):
    """A strategy under measurement."""

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
        """Create fresh accounts, committed."""
        ...

    def load(self, round_number: int) -> Load:
        """Return what the workers do with these accounts in this round, counted from 0."""
        ...

    def balances(self) -> Balances:
        """Return what these accounts hold together, while others change them."""
        ...

    def audited_accounts(self) -> Iterable[AuditedAccount]:
        """Return these accounts as they are now."""
        ...


@dataclass(slots=True, kw_only=True)
class Trial:
    """One contender under one plan, with what was measured so far."""

    contender: MeasuredStrategy
    """What is measured."""
    plan: LoadPlan
    """How it is loaded."""
    label: str
    """What the progress calls it."""
    results: list[PoolResult] = field(default_factory=list)
    """What came of its rounds so far."""
    cut_short: bool = False
    """Whether it was interrupted."""

    def run(self, round_number: int, *, pool: Pool, alias: str, progress: ProgressHook | None) -> None:
        load_tasks = self._tasks(self.contender.load(round_number), round_number=round_number, alias=alias)
        tasks: list[Task] = [*load_tasks, *[idle] * (pool.size - len(load_tasks))]
        result = pool.run(tasks, on_tick=progress(self.label) if progress else None)
        # The server may still be running the last statement of a worker that was killed.
        end_sessions(alias, [failure.session for failure in result.worker_failures])
        self.results.append(result)
        self.cut_short = pool.interrupt.requested

    def row(self) -> LoadRow | None:
        """Return what came of all rounds, judged by what the database holds; None where no worker did anything."""
        rounds: list[tuple[Tally | None, ...]] = [result.results for result in self.results]
        tallies = [tally for each_round in rounds for tally in each_round if tally]
        failures = [failure for result in self.results for failure in result.worker_failures]
        if not (tallies or failures):
            return None
        # A worker that died, or lost its connection at COMMIT, leaves changes whose outcome is unknown.
        known = not failures and not any(tally.in_doubt for tally in tallies)
        return build_row(
            rounds,
            audit(self.contender.audited_accounts(), acknowledged=Tally.merge(tallies).acknowledged if known else None),
            strategy=self.contender.name,
            safe=self.contender.safe,
            guarantee=self.contender.guarantee,
            engine=self.contender.engine,
            worker_failures=tuple(map(str, failures)),
            cut_short=self.cut_short or len(self.results) < self.plan.rounds,
        )

    def _tasks(self, load: Load, *, round_number: int, alias: str) -> list[LoadTask]:
        """Return each worker's part of a round."""
        return [
            LoadTask(
                load=load,
                worker=number,
                alias=alias,
                seconds=self.plan.seconds,
                operations=self.plan.operations_of(number, round_number=round_number),
                think_time=self.plan.think_time,
            )
            for number in range(self.plan.workers)
        ]


def run_trials(
    trials: Sequence[Trial], *, pool: Pool, alias: str, progress: ProgressHook | None = None
) -> Iterator[tuple[Trial, LoadRow]]:
    """Run all rounds, one of each trial in turn; then yield the trials' rows, as far as they got.

    Each round begins with another trial, so that none always follows the same one. The plans have the same number of
    rounds, and the pool has as many workers as the largest plan needs. An interrupt ends the current round.
    """
    for trial in trials:
        if pool.interrupt.requested:
            return
        trial.contender.open()
    # Rounds of all trials in turn, not one trial after the other: a machine that is slow for a while is slow for all.
    rounds = max(trial.plan.rounds for trial in trials)
    for round_number in range(rounds):
        for trial in rotate(trials, round_number * len(trials) // rounds):
            if not pool.interrupt.requested:
                trial.run(round_number, pool=pool, alias=alias, progress=progress)
    for trial in trials:
        if row := trial.row():
            yield trial, row


def rotate(items: Sequence[Item], start: int) -> list[Item]:
    """Return the items from this index on, followed by the first ones."""
    return [*items[start:], *items[:start]]
