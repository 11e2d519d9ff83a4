"""Acquire and release: leases beside raw psycopg with the same SQL, django-db-mutex and an advisory lock."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

from benchmarks.database import connect_alone
from benchmarks.suite import FigureTable, Options, Say, Section, select_names
from benchmarks.together import START, run_together

LeaseCycle = Callable[[str], None]
"""Acquires the lease of this key, waiting if need be, and releases it."""
Contender = Callable[[], LeaseCycle]
"""Makes it, in the process and on the connection of the caller."""

OURS, BARE = "django_lockstep.leases", "django_lockstep.leases, no session limit"
MUTEX = "django-db-mutex"
TTL, WAIT = 60.0, 60.0
LIMIT = 10_000
"""Milliseconds that a statement may take: of our leases at this ttl, and every session's own limit."""
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
    from django_lockstep.leases.database import SLICE
    from django_lockstep.leases.models import Lease
    from django_lockstep.leases.operations import quoted_names
    from django_lockstep.stores.protocol import pauses

    session = connect_alone()
    names = quoted_names(Lease._meta.db_table, lambda name: Identifier(name).as_string())
    acquire, release = (statement.format(**names) for statement in (sql.ACQUIRE, sql.RELEASE))
    queue = sql.SETTINGS.format(milliseconds=LIMIT) + sql.QUEUE

    def fetch(statement: str, *params: Any) -> Any:
        return session.execute(statement, params, prepare=True).fetchone()

    def queued(key: str) -> Any:
        with session.transaction():
            ClientCursor(session).execute(queue, {"key": key, "after": LIMIT})
            # As the package's own store waits: the comparison is of Django's share alone.
            looks, claims_at = pauses(math.inf), time.monotonic() + SLICE
            while not (row := fetch(acquire, key, "raw", "null", TTL, False, None))[0]:
                time.sleep(next(looks))
                if time.monotonic() > claims_at:
                    session.execute(sql.CLAIM_TURN, {"key": key})
                    claims_at = math.inf
        return row

    def hold(key: str) -> None:
        row = fetch(acquire, key, "raw", "null", TTL, True, LIMIT)
        if not row[0]:
            row = queued(key)
        fetch(release, key, row[1], 0.0, LIMIT)

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
    session = connect_alone()

    def hold(key: str) -> None:
        session.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", [key])
        session.execute("SELECT pg_advisory_unlock(hashtextextended(%s, 0))", [key])

    return hold


def _limited(make: Contender) -> LeaseCycle:
    """Make it on a connection whose session has a limit, which spares each statement of ours its own."""
    from django.db import connection

    options = connection.settings_dict["OPTIONS"]
    options["options"] = f"{options.get('options', '')} -c statement_timeout={LIMIT}".strip()
    return make()


CONTENDERS: Mapping[str, Contender] = {
    OURS: partial(_limited, lease),
    BARE: lease,
    "raw psycopg, same SQL": partial(_limited, raw),
    MUTEX: partial(_limited, mutex),
    "advisory lock": partial(_limited, advisory),
}


def _prepare(make: Contender, seconds: float) -> Callable[[int], tuple[int, float]]:
    hold, key = make(), "the one"
    # Once before: connecting and preparing are not what is compared.
    hold(key)

    def count(number: int) -> tuple[int, float]:
        begun = time.perf_counter()
        done = 0
        while (elapsed := time.perf_counter() - begun) < seconds:
            hold(key)
            done += 1
        return done, elapsed

    return count


def rate(make: Contender, *, seconds: float, workers: int) -> float:
    """Return acquires and releases of one key a second, of all workers together, each a process."""
    counts = run_together(partial(_prepare, make, seconds), workers=workers)
    return float(sum(done / elapsed for done, elapsed in counts))


def measure(contenders: Mapping[str, Contender], options: Options, *, workers: int) -> dict[str, list[float]]:
    """Return every contender's rates by round."""
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    names = list(contenders)
    for number in range(options.rounds):
        # Another one begins in each round: what the machine does at that time meets each of them once.
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            rates[name].append(rate(contenders[name], seconds=options.seconds, workers=workers))
    return rates


def pairs_table(
    rates: Mapping[str, Sequence[float]], *, workers: int, yardstick: str, absent: Mapping[str, str]
) -> FigureTable:
    """Return the medians, and the median ratio of the yardstick to each in the same round."""
    ours = rates[yardstick]
    return FigureTable(
        title="One process" if workers == 1 else f"{workers} processes, one key",
        columns=("contender", "pairs/s", "leases / it"),
        rows=(
            *(
                (
                    name,
                    statistics.median(theirs),
                    statistics.median(mine / its for mine, its in zip(ours, theirs, strict=True)),
                )
                for name, theirs in rates.items()
            ),
            *((f"{name}: {reason}", None, None) for name, reason in absent.items()),
        ),
    )


@dataclass(frozen=True, slots=True)
class Leases:
    """Acquiring and releasing a lease, beside raw psycopg and other packages."""

    name: str = "leases"

    def names(self) -> tuple[str, ...]:
        """Return the contenders' names."""
        return tuple(CONTENDERS)

    def seconds(self, options: Options) -> float:
        """Return how long all rounds take at most."""
        return len(CONTENDERS) * options.rounds * sum(options.seconds + START * n for n in worker_counts(options))

    def run(self, options: Options, *, say: Say) -> Section:
        """Measure one process alone, then the requested number of processes on one key."""
        chosen = select_names(self.names(), options.only)
        absent = {} if find_spec("db_mutex") else {name: "not installed" for name in chosen if name == MUTEX}
        # Ours always takes part: all others are compared with it.
        names = {OURS, *chosen} - {*absent}
        contenders = {name: make for name, make in CONTENDERS.items() if name in names}
        rates = {}
        for workers in worker_counts(options):
            rates[workers] = measure(contenders, options, workers=workers)
            say(f"leases: {workers} done")
        return Section(
            suite=self.name,
            summary=_SUMMARY,
            tables=tuple(pairs_table(rates[n], workers=n, yardstick=OURS, absent=absent) for n in rates),
            data={str(workers): pairs for workers, pairs in rates.items()},
            sound=True,
        )


def worker_counts(options: Options) -> tuple[int, ...]:
    """Return one, and the largest number that was asked for."""
    return tuple(sorted({1, max(options.workers)}))


SUITE = Leases()
