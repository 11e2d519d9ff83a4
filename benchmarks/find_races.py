"""Searches the test suite of the seeded shop for races: what is found, and what recording and trying cost.

The shop has twelve requests and functions that race, and their twelve twins that do not.
"""

from __future__ import annotations

import json
import resource
import statistics
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.suite import FigureTable, Options, Say, Section, select_names
from tests.support.seeded_shop import copy_shop, database_url, run_suite
from tests.testapps.seeded_shop.units import UNITS

_NAME = "seeded-shop"
_SUITE = 30.0
"""Seconds that one run of the shop's suite may take, with or without recording."""
_BUDGET = 150.0
"""Seconds for each second of ``--seconds`` that candidates may be tried."""
_SUMMARY = """\
`pytest --find-races` on the seeded shop, a project of its own: twelve requests and functions with a race, and their \
twelve correct twins. Recording is compared with the suite alone, both run in turns, each in a new process that makes \
its test database; ratios are medians over the rounds.\
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a process and its children took, without the server."""

    wall: float
    cpu: float


@dataclass(frozen=True, slots=True)
class _Trial:
    """What a session that recorded the suite and tried all candidates took, and what it says of each candidate."""

    seconds: float
    candidates: tuple[Mapping[str, Any], ...]

    @property
    def confirmed(self) -> set[str]:
        return {candidate["unit"] for candidate in self.candidates if candidate["verdict"] == "confirmed"}


class FindRaces:
    """The finder on the seeded shop: what recording costs, and what is confirmed."""

    name = "find_races"

    def names(self) -> tuple[str, ...]:
        """Return the name of the only project."""
        return (_NAME,)

    def seconds(self, options: Options) -> float:
        """Return how long everything takes at most."""
        return 2 * _SUITE * options.rounds + _BUDGET * options.seconds + _SUITE

    def run(self, options: Options, *, say: Say) -> Section:
        """Run the suite alone and recorded, then try all candidates."""
        select_names(self.names(), options.only)
        with TemporaryDirectory() as name:
            folder = copy_shop(Path(name))
            alone, recorded = _record(folder, options.rounds, say=say)
            # Once: what is confirmed does not depend on chance, and trying takes minutes.
            trial = _confirm(folder, options=options, say=say)
        racing = {unit.name for unit in UNITS if unit.racing}
        twins = {unit.name for unit in UNITS if not unit.racing}
        say(f"{len(trial.confirmed & racing)} of {len(racing)} races confirmed, {len(trial.confirmed & twins)} twins")
        return Section(
            suite=self.name,
            summary=_SUMMARY,
            tables=(_recording_table(alone, recorded), _verdict_table(trial)),
            data={
                "alone": [*map(asdict, alone)],
                "recorded": [*map(asdict, recorded)],
                "seconds": trial.seconds,
                "candidates": trial.candidates,
            },
            # Both ways: a race that is missed is wrong, and so is a twin that is accused.
            sound=trial.confirmed == racing,
        )


def _record(folder: Path, rounds: int, *, say: Say) -> tuple[list[Cost], list[Cost]]:
    """Return what the suite cost alone and recorded, round by round."""
    alone: list[Cost] = []
    recorded: list[Cost] = []
    for number in range(rounds):
        # A recording is not added to an old one.
        (folder / "races.jsonl").unlink(missing_ok=True)
        # In turns, each in a new process: neither profits from the other one's caches.
        alone.append(_cost(folder))
        recorded.append(_cost(folder, "--find-races", "--race-budget=0", "--race-record=races.jsonl"))
        say(f"round {number + 1}: {alone[-1].wall:.1f} s alone, {recorded[-1].wall:.1f} s recorded")
    return alone, recorded


def _cost(folder: Path, *options: str) -> Cost:
    # Of children: the suite runs in processes, whose time is counted when they have ended.
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    _run(folder, *options)
    wall, after = time.monotonic() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def _confirm(folder: Path, *, options: Options, say: Say) -> _Trial:
    """Record the suite, and try its candidates."""
    begun = time.monotonic()
    budget = f"--race-budget={_BUDGET * options.seconds:.0f}s"
    _run(folder, "--find-races", budget, "--race-report=races.json", status=1)
    seconds = time.monotonic() - begun
    say(f"tried in {seconds:.1f} s")
    report = json.loads((folder / "races.json").read_text("utf-8"))
    names = ("kind", "unit", "verdict", "pairing", "schedules", "seconds")
    return _Trial(seconds, tuple({name: candidate[name] for name in names} for candidate in report["candidates"]))


def _run(folder: Path, *options: str, status: int = 0) -> None:
    done = run_suite(folder, *options, url=database_url())
    if done.returncode != status:
        raise RuntimeError(f"pytest {' '.join(options)} ended with {done.returncode}: {done.stdout}{done.stderr}")


def _recording_table(alone: Sequence[Cost], recorded: Sequence[Cost]) -> FigureTable:
    pairs = list(zip(alone, recorded, strict=True))
    return FigureTable(
        title="Recording",
        columns=("run", "wall s", "CPU s", "wall, to alone", "CPU, to alone"),
        rows=(
            ("the suite alone", *_medians(alone), 1.0, 1.0),
            (
                "recorded",
                *_medians(recorded),
                statistics.median(recorded.wall / alone.wall for alone, recorded in pairs),
                statistics.median(recorded.cpu / alone.cpu for alone, recorded in pairs),
            ),
        ),
    )


def _medians(costs: Sequence[Cost]) -> tuple[float, float]:
    return statistics.median(cost.wall for cost in costs), statistics.median(cost.cpu for cost in costs)


def _verdict_table(trial: _Trial) -> FigureTable:
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for candidate in trial.candidates:
        groups[candidate["verdict"], candidate["kind"]].append(candidate)
    return FigureTable(
        title="Candidates",
        columns=("verdict", "kind", "candidates", "schedules, median", "s, median", "s, worst"),
        rows=tuple(
            (
                *group,
                len(members),
                statistics.median(member["schedules"] for member in members),
                statistics.median(member["seconds"] for member in members),
                max(member["seconds"] for member in members),
            )
            for group, members in sorted(groups.items())
        ),
        notes=(
            f"{len(trial.confirmed)} of {len(UNITS)} requests and functions are confirmed to race.",
            f"Recording the suite and trying all of them took {trial.seconds:.0f} s.",
        ),
    )


SUITE = FindRaces()
