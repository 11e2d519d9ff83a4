"""Explorations as figures, and whether repeating them comes to the same."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from django.contrib.auth import get_user_model
from django.db import connection

from accounts.models import Account, Entry
from accounts.races.ready_made import Race
from django_lockstep.lab.explorer import Exploration, explore

__all__ = ["Found", "Repetition", "ends", "left_behind", "measured", "one_after_the_other", "present"]

Reduction = Literal["dpor", "none"]

_PATIENCE = 5.0
"""Seconds until what is still there counts as left behind."""
_LOOK_AGAIN = 0.05
_ALONE = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What one exploration came to."""

    verdict: str
    """The explorer's word."""
    reason: str
    """The verdict in a sentence."""
    expected: bool
    """Whether the race came out as it says it does, as far as it was explored."""
    schedules: int
    """Schedules run."""
    seconds: float
    """Time taken."""
    deadlocks: int
    """Schedules with a deadlock."""
    ends: tuple[str, ...]
    """The distinct ways to end, sorted."""
    left: int
    """Branches not taken."""

    @property
    def rate(self) -> float:
        """Schedules a second."""
        return self.schedules / self.seconds if self.seconds else 0.0

    @property
    def complete(self) -> bool:
        """Whether nothing was left out."""
        return not self.left and self.verdict in ("holds", "broken")

    def data(self) -> dict[str, Any]:
        """Return plain values."""
        return {**asdict(self), "rate": self.rate}


def measured(race: Race, *, timeout: float, reduction: Reduction = "dpor", first: bool = False) -> Found:
    """Explore the race for so many seconds at most; with ``first`` only up to the first wrong end."""
    exploration = explore(
        race.scenario,
        reduction=reduction,
        timeout=max(timeout, 0.01),
        stop_on_first=first,
        database_is_mine=True,
    )
    expected = exploration.verdict == "incomplete" or race.as_expected(exploration)
    return Found(
        verdict=exploration.verdict,
        reason=exploration.reason,
        expected=expected,
        schedules=exploration.schedules,
        seconds=exploration.seconds,
        deadlocks=exploration.deadlocks,
        ends=ends(exploration),
        left=exploration.left,
    )


def one_after_the_other(race: Race) -> float:
    """Return the seconds that set-up and actors take one after the other, without the explorer: the median of some.

    No commit waits for the disk, as none does in the explorer.
    """
    with connection.cursor() as cursor:
        cursor.execute("SET synchronous_commit = off")
    try:
        return statistics.median([_alone(race) for _ in range(_ALONE)])
    finally:
        with connection.cursor() as cursor:
            cursor.execute("RESET synchronous_commit")


def _alone(race: Race) -> float:
    begun = time.perf_counter()
    made = race.scenario.set_up()
    for actor in race.scenario.actors.values():
        with contextlib.suppress(Exception):  # what an actor raises is part of the race
            actor(made)
    taken = time.perf_counter() - begun
    _empty()
    return taken


def _empty() -> None:
    """Remove every row, which the database made for benchmarks has no use for."""
    tables = connection.introspection.django_table_names(only_existing=True, include_views=False)
    with connection.cursor() as cursor:
        cursor.execute(f"TRUNCATE {', '.join(map(connection.ops.quote_name, tables))} RESTART IDENTITY CASCADE")


def ends(exploration: Exploration) -> tuple[str, ...]:
    """Return the distinct ways to end, without how many schedules led there."""
    return tuple(sorted({str((each.holds, each.state, dict(each.errors))) for each in exploration.outcomes}))


class Repetition:
    """Explores races again and again, and notes which of them did not come to the same."""

    def __init__(self) -> None:
        self.rounds = 0
        self.schedules = 0
        self.differing: set[str] = set()
        self._first: dict[str, Any] = {}

    def again(self, races: Iterable[Race]) -> None:
        """Explore each of them once more."""
        for race in races:
            exploration = explore(race.scenario, database_is_mine=True)
            self.schedules += exploration.schedules
            # Not the time taken, and not the values of the failure's statements, among them times of day.
            kept = {
                **exploration.to_dict(),
                "seconds": None,
                "failure": exploration.failure and exploration.failure.schedule,
            }
            if self._first.setdefault(race.name, kept) != kept:
                self.differing.add(race.name)
        self.rounds += 1


def left_behind(before: Mapping[str, int]) -> dict[str, int]:
    """Return by how much there is more than before of what explorations must not leave; see `present`.

    A session that was closed is there for another moment, so that this looks again for some seconds.
    """
    deadline = time.monotonic() + _PATIENCE
    while True:
        now = present()
        more = {name: max(0, now[name] - before[name]) for name in before}
        if not any(more.values()) or time.monotonic() > deadline:
            return more
        time.sleep(_LOOK_AGAIN)


def present() -> dict[str, int]:
    """Return how many rows there are, other sessions on this database, and locks of theirs."""
    with connection.cursor() as cursor:
        cursor.execute(_OTHERS)
        sessions, locks = cursor.fetchone()
    rows = sum(model._base_manager.count() for model in (Account, Entry, get_user_model()))
    return {"rows": rows, "sessions": sessions, "locks": locks}


_OTHERS = """
SELECT count(DISTINCT activity.pid), count(locks.pid)
FROM pg_stat_activity AS activity LEFT JOIN pg_locks AS locks USING (pid)
WHERE activity.datname = current_database() AND activity.backend_type = 'client backend'
    AND activity.pid <> pg_backend_pid()
"""
