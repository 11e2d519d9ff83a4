"""The race lab: how fast it explores, that reduction changes no outcome, and the same beside frontrun."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from accounts.races.ready_made import Race
from benchmarks.explore.cases import BESIDE, THREE, TWO
from benchmarks.explore.long_code import LONG, measure_long
from benchmarks.explore.measure import (
    Measurement,
    Repetition,
    count_leftovers,
    count_present,
    measure_race,
    price,
    time_sequential,
)
from benchmarks.explore.with_frontrun import explore_with_frontrun, missing
from benchmarks.suite import FigureTable, Options, Say, Section, select_names

__all__ = ["SUITE"]

_TWO, _THREE, _BESIDE, _REPEAT = 3.0, 20.0, 10.0, 15.0
"""Seconds for each second of ``--seconds``: one race of two actors, one of three, one by frontrun, one repetition."""
_LONG = 30.0
"""Seconds for one race of long code, which has no time limit."""
_START = 30.0
"""Seconds that frontrun's process may take besides exploring."""

_SUMMARY = """\
Every interleaving of two and three actors' SQL statements, on real connections. `reduced` leaves out schedules that \
differ in the order of independent statements only, `full` leaves out nothing; both must find the same ends. \
Exploring goes on until nothing is left, except where a time limit is named.\
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
        two, three, beside = (sum(name in names for name in group) for group in (TWO, THREE, BESIDE))
        unit = (
            2 * _TWO * two
            + _THREE * three
            + 2 * _BESIDE * beside
            + (_REPEAT * options.repeat if options.repeat > 1 else 0)
        )
        long = sum(name in names for name in LONG)
        return unit * options.seconds + (0 if missing() else _START * beside) + _LONG * long

    def run(self, options: Options, *, say: Say) -> Section:
        """Explore everything."""
        names = select_names(self.names(), options.only)
        two = dict(_both_ways([TWO[name] for name in names if name in TWO], limit=_limit(_TWO, options), say=say))
        three = dict(_reduced([THREE[name] for name in names if name in THREE], limit=_limit(_THREE, options), say=say))
        beside = dict(_beside([TWO[name] for name in BESIDE if name in names], limit=_limit(_BESIDE, options), say=say))
        long = {name: measure_long(LONG[name]) for name in names if name in LONG}
        repeated = _repeated([TWO[name] for name in names if name in TWO], options, say=say)
        data = {"two": two, "three": three, "long": long, "frontrun": beside, "repeated": repeated}
        groups = (
            _two_table(two),
            _three_table(three, options),
            _long_table(long),
            _beside_table(beside, options),
            _repeat_table(repeated),
        )
        return Section(
            suite=self.name,
            summary=_SUMMARY,
            tables=tuple(table for table in groups if table.rows),
            data=data,
            sound=_sound(two, three, repeated),
        )


def _limit(seconds: float, options: Options) -> float:
    return seconds * options.seconds


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
        found = measure_race(race, timeout=limit)
        say(f"{race.name:36} {found.verdict}: {found.schedules} schedules in {found.seconds:.1f} s")
        yield race.name, found.data()


def _beside(races: Sequence[Race], *, limit: float, say: Say) -> Iterator[tuple[str, dict[str, Any]]]:
    for race in races:
        # Stopped at the first wrong end, as the other one does.
        ours: Measurement = measure_race(race, timeout=limit, first=True)
        theirs = None if missing() else asdict(explore_with_frontrun(race.name, seconds=limit))
        say(f"{race.name:36} {ours.verdict}; frontrun: {theirs['verdict'] if theirs else missing()}")
        yield race.name, {"ours": ours.data(), "frontrun": theirs, "holds": race.holds, "missing": missing()}


def _repeated(races: Sequence[Race], options: Options, *, say: Say) -> dict[str, Any] | None:
    if options.repeat == 1 or not races:
        return None
    # Counted before: the server may have sessions and rows of others.
    before, repetition = count_present(), Repetition()
    deadline = time.monotonic() + _REPEAT * options.seconds * options.repeat
    while repetition.rounds < options.repeat and time.monotonic() < deadline:
        repetition.again(races)
        say(f"repetition {repetition.rounds} of {options.repeat}: {len(repetition.differing)} races differ")
    return {
        "races": len(races),
        "rounds": repetition.rounds,
        "asked": options.repeat,
        "schedules": repetition.schedules,
        "differing": sorted(repetition.differing),
        "left_behind": count_leftovers(before),
    }


def _sound(two: dict[str, Any], three: dict[str, Any], repeated: dict[str, Any] | None) -> bool:
    expected = all(each["reduced"]["expected"] and each["same_ends"] is not False for each in two.values())
    steady = repeated is None or not (repeated["differing"] or any(repeated["left_behind"].values()))
    return expected and steady and all(each["expected"] for each in three.values())


def _two_table(two: dict[str, Any]) -> FigureTable:
    return FigureTable(
        title="Two actors",
        columns=(
            *("race", "verdict", "as expected", "reduced: schedules", "seconds", "schedules/s"),
            *("full: schedules", "seconds", "schedules/s", "ratio", "fixed ms", "same ends"),
        ),
        rows=tuple(
            (
                *(name, each["reduced"]["verdict"], "yes" if each["reduced"]["expected"] else "NO"),
                *(each["reduced"][key] for key in ("schedules", "seconds", "rate")),
                *(each["full"][key] for key in ("schedules", "seconds", "rate")),
                *(each["ratio"], each["fixed_ms"]),
                {True: "yes", False: "NO", None: "out of time"}[each["same_ends"]],
            )
            for name, each in two.items()
        ),
        notes=(
            "Ratio: the time of one more schedule over that of set-up, actors (in turn) and invariant by themselves.",
            "Fixed: what a call takes beside its runs, of which the warm-up is one.",
        ),
    )


def _three_table(three: dict[str, Any], options: Options) -> FigureTable:
    return FigureTable(
        title="Three actors, reduced",
        columns=("race", "verdict", "schedules", "seconds", "schedules/s", "distinct ends"),
        rows=tuple(
            (name, *(each[key] for key in ("verdict", "schedules", "seconds", "rate")), len(each["ends"]))
            for name, each in three.items()
        ),
        notes=(
            f"At most {_limit(_THREE, options):.0f} s each; incomplete: not finished by then.",
            *(f"{name}: {each['reason']}" for name, each in three.items() if not each["expected"]),
        ),
    )


def _long_table(long: dict[str, Any]) -> FigureTable:
    return FigureTable(
        title="Long code, directed",
        columns=("race", "verdict", "schedules", "steps of one", "seconds", "schedules/s", "ratio"),
        rows=tuple(
            (name, *(each[key] for key in ("verdict", "schedules", "statements", "seconds", "rate", "ratio")))
            for name, each in long.items()
        ),
        notes=("Rate and ratio are those of one more schedule, as above.",),
    )


def _beside_table(beside: dict[str, Any], options: Options) -> FigureTable:
    return FigureTable(
        title="Beside frontrun",
        columns=("race", "truth", "lab", "schedules", "seconds", "frontrun", "schedules", "seconds", "finished"),
        rows=tuple(
            (
                *(name, "holds" if each["holds"] else "broken"),
                *(each["ours"][key] for key in ("verdict", "schedules", "seconds")),
                *_foreign_cells(each),
            )
            for name, each in beside.items()
        ),
        notes=(
            f"Both stop at the first wrong end, and after {_limit(_BESIDE, options):.0f} s.",
            "frontrun runs its helper for Django by its own defaults: at most two preemptions; the lab has no bound.",
            "To frontrun an actor that raises is a failure; to the lab the invariant decides.",
        ),
    )


def _foreign_cells(each: dict[str, Any]) -> tuple[str | float | None, ...]:
    theirs = each["frontrun"]
    if theirs is None:
        return (each["missing"], None, None, None)
    return (theirs["verdict"], theirs["schedules"], theirs["seconds"], "yes" if theirs["exhausted"] else "no")


def _repeat_table(repeated: dict[str, Any] | None) -> FigureTable:
    if repeated is None:
        return FigureTable(title="Repetitions", columns=(), rows=())
    left = ", ".join(f"{number} {name}" for name, number in repeated["left_behind"].items())
    return FigureTable(
        title="Repetitions of the ready-made set",
        columns=("races", "repetitions", "asked for", "schedules", "races that differed", "left behind"),
        rows=(
            (
                *(repeated[key] for key in ("races", "rounds", "asked", "schedules")),
                ", ".join(repeated["differing"]) or "none",
                left,
            ),
        ),
    )


SUITE = Explore()
