"""Measures the simulator itself: its overhead for an operation, its memory, and the cost of many workers."""

from __future__ import annotations

import contextlib
import gc
import pickle
import random
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connection

from accounts.models import Account
from accounts.races.fixture import Fixture
from accounts.races.leftovers import new_name
from accounts.races.load import AccountClient, AccountLoad, LoadContender, Workload
from accounts.races.mix import Mix
from accounts.strategies import STRATEGIES
from benchmarks.figures import median_of
from benchmarks.suite import FigureTable, Options, Say, Section, select_names
from benchmarks.workers import Metered, WorkersError, require_no_errors, worker_pool
from django_lockstep.lab.simulator.channel import Task, WorkerChannel, idle
from django_lockstep.lab.simulator.load_task import Client, Load, LoadTask
from django_lockstep.lab.simulator.pool import WorkerPool
from django_lockstep.lab.simulator.tally import LoadOperation, Tally

__all__ = ["NOTHING", "SUITE", "Inside", "InsideLoad", "around", "bare", "kept", "one_task"]

NOTHING, ONE_STATEMENT = "nothing", "one prepared UPDATE"
_ACCOUNTS = 100
_MIX = Mix()
_SIZES = (10_000, 100_000, 300_000)
"""Operations after which memory is measured."""
_POOL_SIZES = (1, 8, 64)
_RUN, _MEMORY, _START = 1.0, 30.0, 45.0
"""Maximum seconds of a run besides its measurement, and of the other two parts."""
_SUMMARY = """\
`around` is a worker's CPU time from the end of one strategy's call to the beginning of the next: counting, drawing, \
timing; less what measuring this costs, as a strategy that does nothing shows. One prepared UPDATE is about the least \
that an operation can take. `client` is the whole CPU time of the worker for an operation, with the database driver. \
All are medians of the rounds, on 100 accounts. `kept` is what a worker still holds after so many operations that did \
nothing, as tracemalloc counts it, and `payload` the size of what it sends to the parent.\
"""


class Nothing:
    """A strategy that does nothing."""

    def deposit(self, pk: object, amount: object) -> None:
        """Do nothing."""

    withdraw = deposit

    def transfer(self, source_pk: object, target_pk: object, amount: object) -> None:
        """Do nothing."""


class OneStatement:
    """One prepared UPDATE on Django's connection, without an entry: the cheapest way to change a balance."""

    def __init__(self) -> None:
        connection.ensure_connection()
        session: Any = connection.connection
        # Psycopg's cursor, below Django's: what Django adds would count as work of the operation.
        self._cursor = session.cursor()
        table, key = (connection.ops.quote_name(name) for name in (Account._meta.db_table, "id"))
        self._sql = f"UPDATE {table} SET balance = balance + %s, version = version + 1 WHERE {key} = %s"

    def deposit(self, pk: object, amount: object) -> None:
        """Add the amount."""
        self._cursor.execute(self._sql, (amount, pk), prepare=True)

    withdraw = deposit


@dataclass(frozen=True, slots=True, kw_only=True)
class BareLoad(AccountLoad):
    """The load of `AccountLoad`, performed by the strategies of this module."""

    @contextlib.contextmanager
    def client(self, worker: int) -> Iterator[AccountClient]:
        """Return this worker's part."""
        method: Any = Nothing() if self.strategy == NOTHING else OneStatement()
        yield AccountClient(self, strategy=method, draws=random.Random(worker))  # noqa: S311 - no secret


@dataclass(slots=True)
class Inside:
    """A client whose operations also measure their own CPU time."""

    client: Client
    """What is done."""
    inside: float = 0.0
    """CPU seconds inside of the operations."""
    between: float = 0.0
    """CPU seconds from the end of one to the beginning of the next."""
    ended: float | None = None
    """The thread's CPU time at the end of the last operation."""

    def next_operation(self) -> LoadOperation:
        """Return the next operation, which times itself."""
        operation = self.client.next_operation()
        return LoadOperation(perform=partial(self._perform, operation.perform), changes=operation.changes)

    def _perform(self, perform: Callable[[], object]) -> object:
        # CPU time of the thread: waiting for the server is neither inside nor between.
        begun = time.thread_time()
        if self.ended is not None:
            self.between += begun - self.ended
        try:
            return perform()
        finally:
            self.ended = time.thread_time()
            self.inside += self.ended - begun

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)


@dataclass(slots=True)
class InsideLoad:
    """A load whose clients are `Inside`; keeps the last one."""

    load: Load
    """What is done."""
    last: Inside | None = field(default=None)
    """The client that was there last."""

    @contextlib.contextmanager
    def client(self, worker: int) -> Iterator[Inside]:
        """Return this worker's part."""
        with self.load.client(worker) as client:
            self.last = Inside(client)
            yield self.last


@dataclass(frozen=True, slots=True, kw_only=True)
class Parted:
    """A worker's task: its load, with the CPU seconds inside of its operations and between them."""

    load: Load
    """What to do."""
    worker: int
    """Which part of it."""
    seconds: float
    """How long."""

    def __call__(self, channel: WorkerChannel) -> tuple[Tally, float, float]:
        """Do it."""
        load = InsideLoad(self.load)
        tally = one_task(load, worker=self.worker, seconds=self.seconds)(channel)
        return (tally, load.last.inside, load.last.between) if load.last else (tally, 0.0, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """A worker task of operations that do nothing, and the memory that it keeps."""

    load: Load
    """What to do."""
    operations: int
    """How often."""

    def __call__(self, channel: WorkerChannel) -> tuple[int, int]:
        """Return the bytes that are kept, and those that are sent."""
        return kept(one_task(self.load, worker=0, operations=self.operations), channel)


def kept(task: LoadTask, channel: WorkerChannel) -> tuple[int, int]:
    """Do the task; return the bytes that are in memory for it afterwards, and those of its tally for the parent."""
    # What is loaded and cached on first use counts for nothing.
    one_task(task.load, worker=task.worker, operations=100)(channel)
    gc.collect()
    tracemalloc.start()
    try:
        tally = task(channel)
        # Garbage that is not collected yet is not kept.
        gc.collect()
        return tracemalloc.get_traced_memory()[0], len(pickle.dumps(tally))
    finally:
        tracemalloc.stop()


def around(pool: WorkerPool, load: Load, *, workers: int, seconds: float) -> dict[str, float]:
    """Return microseconds of an operation: of CPU around it and in all, and the median from call to answer.

    Raises `WorkersError` where operations failed, ``KeyboardInterrupt`` where the user interrupted.
    """
    result = pool.run(_tasks(pool, [Parted(load=load, worker=n, seconds=seconds) for n in range(workers)]))
    if pool.interrupt.requested:
        raise KeyboardInterrupt
    if result.worker_failures:
        raise WorkersError(str(result.worker_failures[0]))
    tallies, inside, between = zip(*result.results[:workers], strict=True)
    require_no_errors(list(tallies))
    whole = Tally.merge(tallies)
    median = whole.latencies.percentile(50)
    return {
        "around": sum(between) / (whole.answered - workers) * 1e6,  # of n operations n - 1 have one before
        "client": (sum(inside) + sum(between)) / whole.answered * 1e6,
        "p50": (median or 0) / 1e3,
    }


def _tasks(pool: WorkerPool, tasks: Sequence[Task]) -> list[Task]:
    return [*tasks, *[idle] * (pool.size - len(tasks))]


def one_task(load: Load, *, worker: int, seconds: float | None = None, operations: int | None = None) -> LoadTask:
    """Return a worker's part of this load, limited by either."""
    return LoadTask(
        load=load, worker=worker, alias=DEFAULT_DB_ALIAS, seconds=seconds, operations=operations, think_time=0.0
    )


def bare(method: str, accounts: Sequence[Any]) -> BareLoad:
    """Return a load by one of this module's strategies."""
    model, using = Account._meta.label, DEFAULT_DB_ALIAS
    return BareLoad(strategy=method, model=model, using=using, accounts=tuple(accounts), mix=_MIX, seed=0)


def _loads(names: Sequence[str], fixture: Fixture) -> Iterator[tuple[str, Load]]:
    for name in names:
        strategy = STRATEGIES[name].bound(using=DEFAULT_DB_ALIAS)
        contender = LoadContender(
            strategy=strategy, fixture=fixture, workload=Workload(accounts=_ACCOUNTS, mix=_MIX, seed=0)
        )
        contender.open()
        yield name, contender.load(0)
    yield ONE_STATEMENT, bare(ONE_STATEMENT, tuple(contender.versions))


# The three parts.


def _overhead(names: Sequence[str], options: Options, say: Say) -> FigureTable:
    """Measure every strategy in turns with one that does nothing, which shows the cost of measuring."""
    workers, samples = max(options.workers), dict[str, list[dict[str, float]]]()
    fixture = Fixture.make(Account, using=DEFAULT_DB_ALIAS, name=new_name())
    with worker_pool(workers) as pool:
        uncounted = _Bare(pool=pool, workers=workers)
        for number in range(options.rounds):
            # New accounts in each round, so that rows with many dead versions slow nobody down.
            loads = list(_loads(names, fixture))
            start = number * len(loads) // options.rounds
            for name, load in loads[start:] + loads[:start]:
                sample = around(pool, load, workers=workers, seconds=options.seconds)
                # Measured beside each strategy, because the clock costs more on a busy machine.
                sample["around"] -= uncounted.cost_of_measuring()
                samples.setdefault(name, []).append(sample)
                say(f"simulator: {name:24} {sample['around']:6.1f} us around {sample['client']:8.0f} us")
        samples[NOTHING] = [{"around": cost, "client": cost, "p50": 0.0} for cost in uncounted.costs]
    fixture.purge()
    rows = sorted(((name, *_medians(each)) for name, each in samples.items()), key=lambda row: row[2])
    return FigureTable(
        title=f"What is around an operation, {workers} workers",
        columns=("strategy", "around us/op", "client us/op", "p50 us", "around / client", "around / p50"),
        rows=tuple(
            (name, mine, client, p50 or None, mine / client, mine / p50 if p50 else None)
            for name, mine, client, p50 in rows
        ),
    )


@dataclass(slots=True, kw_only=True)
class _Bare:
    """Compares the strategy that does nothing with and without the clock inside its operations."""

    pool: WorkerPool
    workers: int
    costs: list[float] = field(default_factory=list)

    def cost_of_measuring(self) -> float:
        """Return the microseconds by which `around` overestimates an operation."""
        seconds, load = 0.3, bare(NOTHING, range(_ACCOUNTS))
        tasks = [Metered(task=one_task(load, worker=n, seconds=seconds)) for n in range(self.workers)]
        results = self.pool.run(_tasks(self.pool, tasks)).results[: self.workers]
        operations = sum(tally.answered for tally, _ in results)
        self.costs.append(sum(cpu for _, cpu in results) / operations * 1e6)
        return around(self.pool, load, workers=self.workers, seconds=seconds)["around"] - self.costs[-1]


def _medians(samples: Sequence[Mapping[str, float]]) -> tuple[float, float, float]:
    mine, client, p50 = (median_of(sample[name] for sample in samples) or 0.0 for name in ("around", "client", "p50"))
    return mine, client, p50


def _memory(say: Say) -> FigureTable:
    rows = []
    with worker_pool(1) as pool:
        for accounts in (1, 1000):
            for operations in _SIZES:
                (result,) = pool.run([Keeping(load=bare(NOTHING, range(accounts)), operations=operations)]).results
                rows.append((f"{operations:,} operations on {accounts:,} accounts", *(part / 1024 for part in result)))
        say("simulator: memory done")
    return FigureTable(title="What a worker keeps", columns=("after", "kept KiB", "payload KiB"), rows=tuple(rows))


def _start(say: Say) -> FigureTable:
    rows = []
    for workers in _POOL_SIZES:
        begun = time.perf_counter()
        with worker_pool(workers) as pool:
            took = time.perf_counter() - begun
            used = median_of(_own_memory(worker.process.pid or 0) for worker in pool.workers)
        rows.append((f"{workers}", took, used))
        say(f"simulator: {workers} workers started in {took:.1f} s")
    return FigureTable(
        title="Workers until all are connected",
        columns=("workers", "seconds", "MiB each"),
        rows=tuple(rows),
        notes=("MiB: the proportional set size, in which shared memory is divided among those who share it.",),
    )


def _own_memory(pid: int) -> float | None:
    """Return the process's proportional set size in MiB; None where it is not available."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:")), None)


@dataclass(frozen=True, slots=True)
class Simulator:
    name: str = "simulator"

    def names(self) -> tuple[str, ...]:
        """Return the strategies' names."""
        return tuple(STRATEGIES)

    def seconds(self, options: Options) -> float:
        """Return how long all parts take at most."""
        return (len(self.names()) + 1) * options.rounds * (options.seconds + _RUN + 1.0) + _MEMORY + _START

    def run(self, options: Options, *, say: Say) -> Section:
        """Measure all three."""
        names = select_names(self.names(), options.only)
        tables = (_overhead(names, options, say), _memory(say), _start(say))
        return Section(
            suite=self.name,
            summary=_SUMMARY,
            tables=tables,
            data={table.title: [dict(zip(table.columns, row, strict=True)) for row in table.rows] for table in tables},
            sound=True,
        )


SUITE = Simulator()
