"""Measures explorations, and their functions without the explorer."""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import asdict, dataclass
from typing import Any

from django.db import connection

from django_lockstep.lab.explorer import explore
from django_lockstep.lab.explorer.options import Reduction
from django_lockstep.lab.races import Race

_ALONE = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The result of one exploration."""

    verdict: str
    """The explorer's verdict."""
    reason: str
    """The verdict in a sentence."""
    expected: bool
    """Whether the result is the one that the race declares, as far as it was explored."""
    schedules: int
    """Schedules run."""
    seconds: float
    """Time taken."""
    ends: tuple[str, ...]
    """The distinct outcomes, sorted."""
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


def measure_race(race: Race, *, timeout: float, reduction: Reduction = "dpor", most: int | None = None) -> Measurement:
    """Explore the race for at most ``timeout`` seconds and ``most`` schedules."""
    exploration = explore(
        race.scenario,
        reduction=reduction,
        timeout=max(timeout, 0.01),
        max_schedules=most,
        audit=0,
        database_is_mine=True,
    )
    expected = exploration.verdict == "incomplete" or race.as_expected(exploration)
    return Measurement(
        verdict=exploration.verdict,
        reason=exploration.reason,
        expected=expected,
        schedules=exploration.schedules,
        seconds=exploration.seconds,
        # Without the number of their schedules.
        ends=tuple(sorted({str((end.holds, end.state, dict(end.errors))) for end in exploration.outcomes})),
        left=exploration.left,
    )


def price(race: Race, full: Measurement) -> tuple[float, float] | None:
    """Return the seconds that one more schedule takes in the exploration, and those that a call takes beside its runs.

    The second is what a call with two schedules takes more than three: the warm-up is a run, too. It contains opening
    and parsing, and the confirmation if one of the two is wrong. None where there are too few schedules to tell them
    apart.
    """
    # Of one alone the call would repeat it, as it does not where others follow.
    few = [measure_race(race, timeout=math.inf, reduction="none", most=2) for _ in range(_ALONE)]
    seconds, schedules = statistics.median(measurement.seconds for measurement in few), few[0].schedules
    if full.schedules <= schedules:
        return None
    schedule = (full.seconds - seconds) / (full.schedules - schedules)
    return schedule, seconds - (schedules + 1) * schedule


def time_sequential(race: Race) -> float:
    """Return the median seconds of the scenario's functions, the actors one after the other, without the explorer.

    Commits do not wait for the disk, as in the explorer.
    """
    with connection.cursor() as cursor:
        # The ratio is to show the explorer's cost, not the disk's.
        cursor.execute("SET synchronous_commit = off")
    try:
        return statistics.median([_alone(race) for _ in range(_ALONE)])
    finally:
        with connection.cursor() as cursor:
            cursor.execute("RESET synchronous_commit")


def _alone(race: Race) -> float:
    scenario = race.scenario
    results: dict[str, Any] = {}
    errors: dict[str, BaseException] = {}
    begun = time.perf_counter()
    objects = scenario.set_up()
    for name, actor in scenario.actors.items():
        try:
            results[name] = actor(objects)
        except Exception as error:  # noqa: BLE001 - what an actor raises is part of the race
            errors[name] = error
    # As after each schedule: whatever calls these functions has to look at what came of it.
    if scenario.observe is not None:
        scenario.observe(objects)
    scenario.objection(objects, results, errors)
    # Emptied outside of the time, because the explorer puts rows back in another way.
    taken = time.perf_counter() - begun
    empty_tables()
    return taken


def empty_tables() -> None:
    """Remove all rows of the benchmarks' database."""
    tables = connection.introspection.django_table_names(only_existing=True, include_views=False)
    with connection.cursor() as cursor:
        cursor.execute(f"TRUNCATE {', '.join(map(connection.ops.quote_name, tables))} RESTART IDENTITY CASCADE")
