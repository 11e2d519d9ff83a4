"""The race lab: how fast it explores, and that reduction changes no outcome."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.explore.cases import THREE, TWO
from benchmarks.explore.long_code import LONG, measure_long
from benchmarks.explore.measure import empty_tables, measure_race, price, time_sequential
from benchmarks.figures import median_of
from benchmarks.suite import FigureTable, Options, Say, Section, select_names
from django_lockstep.lab.explorer.tables.control_session import kept_sessions
from django_lockstep.lab.races import Race

__all__ = ["SUITE"]

_TWO, _THREE = 3.0, 20.0
"""Seconds for each second of ``--seconds``: one race of two actors, one of three."""
_LONG = 30.0
"""Seconds for one race of long code, which has no time limit."""

_SUMMARY = """\
Every interleaving of two and three actors' SQL statements, on real connections. `reduced` leaves out schedules that \
differ in the order of independent statements only, `full` leaves out nothing; both must find the same ends. \
Exploring goes on until nothing is left, except where a time limit is named. The audit's 20 random walks are left out.\
"""


@dataclass(frozen=True, slots=True)
class Explore:
    name: str = "explore"

    def names(self) -> tuple[str, ...]:
        """Return the names of all races."""
        return (*TWO, *THREE, *LONG)

    def seconds(self, options: Options) -> float:
        """Return how long everything takes at most."""
        names = select_names(self.names(), options.only)
        two, three, long = (sum(name in names for name in group) for group in (TWO, THREE, LONG))
        return (2 * _TWO * two + _THREE * three) * options.seconds + _LONG * long

    def run(self, options: Options, *, say: Say) -> Section:
        """Explore everything."""
        names = select_names(self.names(), options.only)
        empty_tables()  # of what another suite has left
        with kept_sessions():  # as in a session of pytest
            return self._measure(names, options, say=say)

    def _measure(self, names: Collection[str], options: Options, *, say: Say) -> Section:
        two = dict(_both_ways([TWO[name] for name in names if name in TWO], limit=_TWO * options.seconds, say=say))
        three = dict(
            _reduced([THREE[name] for name in names if name in THREE], limit=_THREE * options.seconds, say=say)
        )
        long = {name: measure_long(LONG[name]) for name in names if name in LONG}
        groups = (_two_table(two), _three_table(three, options), _long_table(long))
        return Section(
            suite=self.name,
            summary=_SUMMARY,
            tables=tuple(table for table in groups if table.rows),
            data={"two": two, "three": three, "long": long},
            sound=_sound(two, three),
        )


def _both_ways(races: Sequence[Race], *, limit: float, say: Say) -> Iterator[tuple[str, dict[str, Any]]]:
    for race in races:
        reduced = measure_race(race, timeout=limit)
        # Before and after, as the speed of a machine may change in between.
        before = time_sequential(race)
        full = measure_race(race, timeout=limit, reduction="none")
        alone = (before + time_sequential(race)) / 2
        say(f"{race.name:36} {reduced.verdict}: {reduced.schedules} schedules, {full.schedules} without reduction")
        # Only where both are complete: of a part, nothing follows for the other.
        same = reduced.ends == full.ends if reduced.complete and full.complete else None
        schedule, fixed = price(race, full) or (None, None)
        figures = {
            "alone": alone,
            "ratio": None if schedule is None else schedule / alone,
            "fixed_ms": None if fixed is None else 1000 * fixed,
            "same_ends": same,
        }
        yield race.name, {"reduced": reduced.data(), "full": full.data(), **figures}


def _reduced(races: Sequence[Race], *, limit: float, say: Say) -> Iterator[tuple[str, dict[str, Any]]]:
    for race in races:
        measurement = measure_race(race, timeout=limit)
        say(f"{race.name:36} {measurement.verdict}: {measurement.schedules} schedules in {measurement.seconds:.1f} s")
        yield race.name, measurement.data()


def _sound(two: dict[str, Any], three: dict[str, Any]) -> bool:
    expected = all(race["reduced"]["expected"] and race["same_ends"] is not False for race in two.values())
    return expected and all(race["expected"] for race in three.values())


def _two_table(two: dict[str, Any]) -> FigureTable:
    """Return a row for each scenario, of which most are raced by many strategies."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for name, figures in two.items():
        groups.setdefault(name.partition(":")[0], []).append(figures)
    return FigureTable(
        title="Two actors",
        columns=(
            *("scenario", "races", "as expected", "schedules", "schedules/s", "without reduction", "schedules/s"),
            *("ratio", "fixed ms", "same ends"),
        ),
        rows=tuple((name, *_two_cells(races)) for name, races in groups.items()),
        notes=(
            "Ratio: the time of one more schedule over that of set-up, actors (in turn) and invariant by themselves.",
            "Fixed: what a call takes beside its runs, of which the warm-up is one. Both are medians over the races.",
            "Same ends: of the races that were searched to the end with and without reduction.",
        ),
    )


def _two_cells(races: Sequence[dict[str, Any]]) -> Iterator[str | int | float | None]:
    yield len(races)
    yield sum(race["reduced"]["expected"] for race in races)
    for search in ("reduced", "full"):
        schedules = sum(race[search]["schedules"] for race in races)
        yield schedules
        yield schedules / sum(race[search]["seconds"] for race in races)
    yield from (median_of(race[figure] for race in races) for figure in ("ratio", "fixed_ms"))
    compared = [race["same_ends"] for race in races if race["same_ends"] is not None]
    yield f"{sum(compared)} of {len(compared)}"


def _three_table(three: dict[str, Any], options: Options) -> FigureTable:
    return FigureTable(
        title="Three actors, reduced",
        columns=("race", "verdict", "schedules", "seconds", "schedules/s", "distinct ends"),
        rows=tuple(
            (name, *(race[key] for key in ("verdict", "schedules", "seconds", "rate")), len(race["ends"]))
            for name, race in three.items()
        ),
        notes=(
            f"At most {_THREE * options.seconds:.0f} s each; incomplete: not finished by then.",
            *(f"{name}: {race['reason']}" for name, race in three.items() if not race["expected"]),
        ),
    )


def _long_table(long: dict[str, Any]) -> FigureTable:
    return FigureTable(
        title="Long code, directed",
        columns=("race", "verdict", "schedules", "steps of one", "seconds", "schedules/s", "ratio"),
        rows=tuple(
            (name, *(race[key] for key in ("verdict", "schedules", "statements", "seconds", "rate", "ratio")))
            for name, race in long.items()
        ),
        notes=("Rate and ratio are those of one more schedule, as above.",),
    )


SUITE = Explore()
