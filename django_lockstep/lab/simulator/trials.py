"""Trials: each strategy on fresh accounts, in rounds that alternate between the strategies, by the same workers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from django_lockstep.lab.simulator.audit import AuditedAccount, Balances, audit
from django_lockstep.lab.simulator.database import end_sessions
from django_lockstep.lab.simulator.load_plan import LoadPlan
from django_lockstep.lab.simulator.load_task import Load, LoadTask
from django_lockstep.lab.simulator.pool import PoolResult, WorkerPool
from django_lockstep.lab.simulator.report import LoadRow, build_row
from django_lockstep.lab.simulator.tally import Tally
from django_lockstep.lab.simulator.worker_process import Task, idle

Item = TypeVar("Item")

ProgressHook = Callable[[str], Callable[[], None] | None]
"""Called with the name of what runs next; returns what is to be called every tenth of a second while it runs."""


@dataclass(slots=True, kw_only=True)
class LoadTrial(ABC):
    """One strategy with accounts of its own, under one plan, with the results of its rounds so far."""

    label: str
    """What the progress calls it."""
    results: list[PoolResult] = field(default_factory=list)
    cut_short: bool = False
    """Whether it was interrupted."""
    plan: LoadPlan
    """How it is loaded."""
    size: int | None = None
    """The number of workers or accounts, where a sweep varies it."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What reports call it."""

    @property
    @abstractmethod
    def safe(self) -> bool:
        """Whether it claims to lose no update."""

    @abstractmethod
    def load(self, round_number: int) -> Load:
        """Return what the workers do with the accounts in this round, counted from 0."""

    @abstractmethod
    def balances(self) -> Balances:
        """Return what the accounts hold together, while others change them."""

    @abstractmethod
    def audited_accounts(self) -> Iterable[AuditedAccount]:
        """Return the accounts as they are now."""

    @abstractmethod
    def open(self) -> None:
        """Create what has to be there before any trial begins, committed."""

    def run(self, round_number: int, *, pool: WorkerPool, progress: ProgressHook | None) -> None:
        """Have the workers run a round, keep its result, and end the sessions of workers that were killed."""
        tasks: list[Task] = [idle] * pool.size
        load = self.load(round_number)
        for number in range(self.plan.workers):
            tasks[number] = LoadTask(
                load=load,
                worker=number,
                seconds=self.plan.seconds,
                operations=self.plan.operations_of(number, round_number=round_number),
                think_time=self.plan.think_time,
            )
        result = pool.run(tasks, on_tick=progress(self.label) if progress else None)
        # The server may still be running the last statement of a worker that was killed.
        end_sessions(pool.alias, [failure.session for failure in result.worker_failures])
        self.results.append(result)
        self.cut_short = pool.interrupt.requested

    @property
    def worker_failures(self) -> tuple[str, ...]:
        """The workers that did not finish a round, and why."""
        return tuple(str(failure) for result in self.results for failure in result.worker_failures)

    def row(self) -> LoadRow | None:
        """Return the verdict and figures of all rounds; None where no worker did anything."""
        rounds: list[tuple[Tally | None, ...]] = [result.results for result in self.results]
        tallies = [tally for each_round in rounds for tally in each_round if tally]
        if not (self.worker_failures or any(tally.operations for tally in tallies)):
            return None
        # A worker that died, or lost its connection at COMMIT, leaves changes whose outcome is unknown.
        is_complete = not self.worker_failures and not any(tally.in_doubt for tally in tallies)
        return build_row(
            rounds,
            audit(self.audited_accounts(), acknowledged=Tally.merge(tallies).acknowledged if is_complete else None),
            strategy=self.name,
            safe=self.safe,
            size=self.size,
            worker_failures=self.worker_failures,
            cut_short=self.cut_short or len(self.results) < self.plan.rounds,
        )


def run_trials(
    trials: Sequence[LoadTrial], *, pool: WorkerPool, progress: ProgressHook | None = None
) -> Iterator[LoadRow]:
    """Run all rounds, one of each trial in turn; then yield the trials' rows, as far as they got.

    Each round begins with another trial, so that none always follows the same one. The trials have the same number of
    rounds, and the pool has as many workers as the largest needs. An interrupt ends the current round.
    """
    for trial in trials:
        if pool.interrupt.requested:
            return
        trial.open()
    # Rounds of all trials in turn, not one trial after the other: a machine that is slow for a while is slow for all.
    rounds = max(trial.plan.rounds for trial in trials)
    for round_number in range(rounds):
        for trial in rotate(trials, round_number * len(trials) // rounds):
            if not pool.interrupt.requested:
                trial.run(round_number, pool=pool, progress=progress)
    yield from (row for trial in trials if (row := trial.row()) is not None)


def rotate(items: Sequence[Item], start: int) -> list[Item]:
    """Return the items from this index on, followed by the first ones."""
    return [*items[start:], *items[:start]]
