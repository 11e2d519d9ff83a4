"""Acquire and release: leases beside raw psycopg with the same SQL, django-db-mutex and an advisory lock."""

from __future__ import annotations

import math
import multiprocessing
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from benchmarks.suite import FigureTable, Options, Say, Section, select_names

__all__ = ["CONTENDERS", "SUITE", "count", "measure"]

LeaseCycle = Callable[[str], None]
"""Acquires the lease of this key, waiting if need be, and releases it."""

OURS, BARE = "django_lockstep.leases", "django_lockstep.leases, no session limit"
TTL, WAIT = 60.0, 60.0
LIMIT = 10_000
"""Milliseconds that a statement may take: of our leases at this ttl, and every session's own limit."""
_START = 2.0
"""Seconds that one worker process takes at most to start, beside all others."""
_SUMMARY = """\
Every operation acquires one lease and releases it. `leases / it` is the rate of django_lockstep.leases by that of the \
contender in the same round, the median of the rounds. raw psycopg sends the same SQL without Django. django-db-mutex \
does not wait: a refused attempt is repeated after 5 ms. An advisory lock is not a lease: it has no time to live and \
no token and writes nothing; it is the lower bound. All sessions have a statement_timeout, except those with no \
session limit, where each statement of leases sets its own.\
"""
PAUSE = 0.005
"""Seconds between two attempts of contenders that poll."""


def lease() -> LeaseCycle:
    """Return this package's lease."""
    from django_lockstep.leases.models import Lease

    def hold(key: str) -> None:
        handle = Lease.objects.acquire(key, TTL, wait=WAIT)
        if handle is None:
            raise TimeoutError(key)
        handle.release()

    return hold


def raw() -> LeaseCycle:
    """Return the same SQL on a bare psycopg connection."""
    from psycopg import ClientCursor
    from psycopg.sql import Identifier

    from django_lockstep.leases import postgresql as sql
    from django_lockstep.leases.models import Lease
    from django_lockstep.leases.operations import quoted_names
    from django_lockstep.leases.statements import SLICE
    from django_lockstep.stores.waiting import pauses

    session = _connect()
    names = quoted_names(Lease._meta.db_table, lambda name: Identifier(name).as_string())
    acquire, release = (statement.sql.format(**names) for statement in (sql.ACQUIRE, sql.RELEASE))
    queue = sql.SETTINGS.format(milliseconds=LIMIT) + sql.QUEUE

    def row(statement: str, *facts: Any) -> Any:
        return session.execute(statement, facts, prepare=True).fetchone()

    def queued(key: str) -> Any:
        with session.transaction():
            ClientCursor(session).execute(queue, {"key": key, "after": LIMIT})
            # As the package's own store waits: the comparison is of Django's share alone.
            looks, claims_at = pauses(math.inf), time.monotonic() + SLICE
            while not (found := row(acquire, key, "raw", "null", TTL, False, True, None))[0]:
                time.sleep(next(looks))
                if time.monotonic() > claims_at:
                    session.execute(sql.CLAIM_TURN, {"key": key})
                    claims_at = math.inf
        return found

    def hold(key: str) -> None:
        found = row(acquire, key, "raw", "null", TTL, True, True, LIMIT)
        if not found[0]:
            found = queued(key)
        row(release, key, found[1], 0.0, LIMIT)

    return hold


def mutex() -> LeaseCycle:
    """Return django-db-mutex, polling because it does not wait."""
    from db_mutex.db_mutex import db_mutex
    from db_mutex.exceptions import DBMutexError

    def hold(key: str) -> None:
        while True:
            try:
                with db_mutex(key):
                    return
            except DBMutexError:
                time.sleep(PAUSE)

    return hold


def advisory() -> LeaseCycle:
    """Return a session's advisory lock."""
    session = _connect()

    def hold(key: str) -> None:
        session.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", [key])
        session.execute("SELECT pg_advisory_unlock(hashtextextended(%s, 0))", [key])

    return hold


CONTENDERS: Mapping[str, Callable[[], LeaseCycle]] = {
    OURS: lease,
    BARE: lease,
    "raw psycopg, same SQL": raw,
    "django-db-mutex": mutex,
    "advisory lock": advisory,
}
"""Makes each contender, on the connection of the process that calls it."""


def _connect() -> Any:
    import psycopg
    from django.db import connection

    given = connection.get_connection_params()
    address = {
        name: given[name] for name in ("dbname", "host", "port", "user", "password", "options") if given.get(name)
    }
    return psycopg.connect(**address, autocommit=True)


def count(name: str, *, seconds: float, key: str) -> tuple[int, float]:
    """Return how often this process held the key, and the seconds that it took."""
    hold = CONTENDERS[name]()
    # Once before: connecting and preparing are not what is compared.
    hold(key)
    begun = time.perf_counter()
    done = 0
    while (elapsed := time.perf_counter() - begun) < seconds:
        hold(key)
        done += 1
    return done, elapsed


def _work(database: str, begin: Any, reported: Any, name: str, seconds: float) -> None:
    import django

    django.setup()
    from django.db import connection, connections

    connection.settings_dict["NAME"] = database
    # A limit of the session spares each statement of ours its own; this shows what that is worth.
    if name != BARE:
        options = connection.settings_dict["OPTIONS"]
        options["options"] = f"{options.get('options', '')} -c statement_timeout={LIMIT}".strip()
    connection.ensure_connection()
    begin.wait()
    reported.put(count(name, seconds=seconds, key="the one"))
    connections.close_all()


def rate(name: str, *, seconds: float, workers: int) -> float:
    """Return acquires and releases of one key a second, of all workers together, each a process."""
    from django.db import connection

    context = multiprocessing.get_context("spawn")
    begin, reported = context.Barrier(workers), context.Queue()
    arguments = (connection.settings_dict["NAME"], begin, reported, name, seconds)
    processes = [context.Process(target=_work, args=arguments) for _ in range(workers)]
    for process in processes:
        process.start()
    counts = [reported.get() for _ in processes]
    for process in processes:
        process.join()
    return float(sum(done / elapsed for done, elapsed in counts))


def measure(names: Sequence[str], options: Options, *, workers: int) -> dict[str, list[float]]:
    """Return every contender's rates by round; an empty list for one that is not installed."""
    rates: dict[str, list[float]] = {name: [] for name in names}
    there = [name for name in names if not _missing(name)]
    for number in range(options.rounds):
        # Another one begins in each round: what the machine does at that time meets each of them once.
        turn = number % len(there)
        for name in there[turn:] + there[:turn]:
            rates[name].append(rate(name, seconds=options.seconds, workers=workers))
    return rates


def _missing(name: str) -> bool:
    return name == "django-db-mutex" and find_spec("db_mutex") is None


def _table(title: str, rates: Mapping[str, Sequence[float]]) -> FigureTable:
    """Return the medians, and the median ratio of ours to each in the same round."""
    ours = rates[OURS]
    return FigureTable(
        title=title,
        columns=("contender", "pairs/s", "leases / it"),
        rows=tuple(
            (
                name,
                statistics.median(theirs),
                statistics.median(mine / its for mine, its in zip(ours, theirs, strict=True)),
            )
            if theirs
            else (f"{name}: not installed", None, None)
            for name, theirs in rates.items()
        ),
    )


@dataclass(frozen=True, slots=True)
class Leases:
    name: str = "leases"

    def names(self) -> tuple[str, ...]:
        """Return the contenders' names."""
        return tuple(CONTENDERS)

    def seconds(self, options: Options) -> float:
        """Return how long all rounds take at most."""
        return len(CONTENDERS) * options.rounds * sum(options.seconds + _START * n for n in _workers(options))

    def run(self, options: Options, *, say: Say) -> Section:
        """Measure one process alone, then the requested number of processes on one key."""
        # Ours always takes part: all others are compared with it.
        names = [OURS, *(name for name in select_names(self.names(), options.only) if name != OURS)]
        cells = {}
        for workers in _workers(options):
            cells[workers] = measure(names, options, workers=workers)
            say(f"leases: {workers} done")
        titles = {n: "One process" if n == 1 else f"{n} processes, one key" for n in cells}
        return Section(
            suite=self.name,
            summary=_SUMMARY,
            tables=tuple(_table(titles[workers], rates) for workers, rates in cells.items()),
            data={str(workers): rates for workers, rates in cells.items()},
            sound=True,
        )


def _workers(options: Options) -> tuple[int, ...]:
    return tuple(sorted({1, max(options.workers)}))


SUITE = Leases()
