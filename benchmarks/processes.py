"""Races explored by several processes: the same ends as by one, how much faster, and what the one that leads costs."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any
from unittest.mock import patch

from django.db import connection

from accounts.contention import contention
from accounts.models import Account
from accounts.races.ready_made import RACES
from accounts.races.rows import make_user, one_account, open_account
from accounts.strategies import STRATEGIES, Strategy
from benchmarks.dask_cluster import cluster_of_two
from benchmarks.explore.measure import ends
from benchmarks.random_races import random_race
from benchmarks.suite import FigureTable, Options, Say, Section, select_names
from django_lockstep.lab.explorer import Exploration, Run, explore, processes
from django_lockstep.lab.explorer.options import Reduction
from django_lockstep.lab.explorer.scratch import scratch_databases
from django_lockstep.lab.scenario import Scenario

__all__ = ["SUITE"]

_AGREE, _RATE, _FOUR = 10.0, 90.0, 180.0
"""Seconds for each second of ``--seconds``: one exploration of a race of two actors; one measurement of a rate; one
race of four actors."""
_RANDOM = 200
"""Random races."""
_STATEMENT = 0.02
"""Seconds that a statement takes to the server and back, where the server is far away."""
_SUMMARY = f"""\
`explore(processes=N)` and `explore(cluster=...)`. Ready-made races, and random ones of two transactions of up to \
three actions, are explored by one process, by two, and by a Dask cluster of two workers on this machine; workers \
begin at once. Rates are those of as many schedules of one long exploration, by one process and by several in turn, \
from when all processes explore; medians over the rounds, with the lowest and the highest ratio of a round. `distant` \
is a race whose statements take {1000 * _STATEMENT:.0f} ms each. What the leading process takes for a schedule is its \
CPU time for the same ones: as many workers as fit into the time that a schedule takes one worker keep it busy.\
"""
_OTHER_ORDER = """\
Several processes take branches in another order, so that their first schedules are not all the same ones, and other \
ones have to be tried again: a ratio may be above the number of processes.\
"""
_BIG = "lost-update:optimistic"
_ACTORS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where the server is, and how rates are measured there."""

    distant: bool
    """Whether statements take `_STATEMENT`."""
    workers: int
    first: int
    """How many schedules end before the first one that counts: by then all workers explore."""
    count: int
    """How many then count for each of ``--seconds``."""


_PLACES = {
    "near": _Place(distant=False, workers=2, first=100, count=300),
    "distant": _Place(distant=True, workers=8, first=20, count=120),
}
_NAMES = ("agreement", "rates", "four actors")
_AT_RANDOM = "random:"
_EXPLORERS = ("one", "two", "cluster")


def big(*, distant: bool) -> Scenario:
    """Return a race that has more schedules than can be run here, in this or another process."""
    scenario = RACES[_BIG].with_actors(_ACTORS).scenario
    if not distant:
        return scenario
    actors = {name: functools.partial(_far_away, actor) for name, actor in scenario.actors.items()}
    return Scenario(set_up=scenario.set_up, actors=actors, invariant=scenario.invariant, observe=scenario.observe)


def four(name: str) -> Scenario:
    """Return four equal deposits into one account, or a ring of four transfers, by a strategy."""
    story, _, strategy = name.partition(":")
    return _FOURS[story][0](STRATEGIES[strategy].bound(engine="plain"))


def _deposits(strategy: Strategy) -> Scenario:
    def deposit(pk: Any) -> None:
        strategy.deposit(pk, 10)

    def set_up() -> Any:
        contention.clear()  # what one schedule taught would change the next
        return one_account()

    return Scenario(
        set_up=set_up,
        actors=[deposit] * _ACTORS,
        invariant=lambda pk: Account.objects.get(pk=pk).balance == 100 + 10 * _ACTORS,
    )


def _ring(strategy: Strategy) -> Scenario:
    def to_the_next(number: int) -> Callable[[list[Any]], Any]:
        return lambda pks: strategy.transfer(pks[number], pks[(number + 1) % _ACTORS], 5)

    return Scenario(
        set_up=_four_accounts,
        actors=[to_the_next(number) for number in range(_ACTORS)],
        invariant=_nothing_is_lost,
    )


_FOURS: dict[str, tuple[Callable[[Strategy], Scenario], Reduction]] = {
    "deposits": (_deposits, "symmetric"),
    "ring": (_ring, "dpor"),
}


def _nothing_is_lost(pks: list[Any]) -> bool:
    return sum(Account.objects.filter(pk__in=pks).values_list("balance", flat=True)) == 100 * _ACTORS


def _four_accounts() -> list[Any]:
    contention.clear()
    owner = make_user()
    return [open_account(100, overdraft_limit=1000, user=owner).pk for _ in range(_ACTORS)]


def _far_away(actor: Callable[[Any], Any], fixture: Any) -> Any:
    def later(execute: Callable[..., Any], *args: Any) -> Any:
        time.sleep(_STATEMENT)
        return execute(*args)

    with connection.execute_wrapper(later):
        return actor(fixture)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rate:
    """How fast an exploration goes on, once it runs."""

    schedules: float
    """Schedules a second."""
    leading_ms: float
    """Milliseconds of CPU time that the leading process takes for one."""


@dataclass(frozen=True, slots=True)
class Processes:
    name: str = "processes"

    def names(self) -> tuple[str, ...]:
        """Return the names of the parts."""
        return _NAMES

    def seconds(self, options: Options) -> float:
        """Return how long everything takes at most."""
        names = select_names(_NAMES, options.only)
        rates = 2 * len(_PLACES) * _RATE * options.rounds
        parts = (3 * _AGREE * (len(RACES) + _RANDOM), rates, _FOUR * len(_four_names()))
        return options.seconds * sum(part for name, part in zip(_NAMES, parts, strict=True) if name in names)

    def run(self, options: Options, *, say: Say) -> Section:
        """Explore scratch databases of the benchmarks' own."""
        names = select_names(_NAMES, options.only)
        with scratch_databases():
            agreed = dict(_agreement(options, say=say)) if "agreement" in names else {}
            rates = dict(_rates(options, say=say)) if "rates" in names else {}
            fours = dict(_fours(options, say=say)) if "four actors" in names else {}
        tables = (_agreement_table(agreed), _rate_table(rates), _four_table(fours, options))
        return Section(
            suite=self.name,
            summary=_SUMMARY,
            tables=tuple(table for table in tables if table.rows),
            data={"agreement": agreed, "rates": rates, "four": fours},
            sound=all(each["same"] is not False for each in agreed.values()),
        )


def _agreement(options: Options, *, say: Say) -> Iterator[tuple[str, dict[str, Any]]]:
    loads = {name: functools.partial(_ready_made, name) for name in RACES}
    loads |= {f"{_AT_RANDOM}{number}": functools.partial(random_race, number) for number in range(_RANDOM)}
    with cluster_of_two() as address:
        for name, load in loads.items():
            limit = _AGREE * options.seconds
            one = explore(load(), timeout=limit)
            with patch.object(processes, "_ALONE", 0.0):
                others = [
                    explore(load(), load=load, timeout=limit, **where)
                    for where in ({"processes": 2}, {"cluster": address})
                ]
            found = [one, *others]
            # Only where all are complete: of a part, nothing follows for the others.
            complete = not any(each.left for each in found)
            same = all((one.verdict, ends(one)) == (each.verdict, ends(each)) for each in others) if complete else None
            counts = dict(zip(_EXPLORERS, (each.schedules for each in found), strict=True))
            say(f"{name:36} {', '.join(f'{count} schedules by {by}' for by, count in counts.items())}")
            yield name, {**counts, "same": same}


def _ready_made(name: str) -> Scenario:
    return RACES[name].scenario


def _rates(options: Options, *, say: Say) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, place in _PLACES.items():
        rounds = [_round(name, place, options=options, say=say) for _ in range(options.rounds)]
        ratios = [several.schedules / one.schedules for one, several in rounds]
        alone, leading = median(one.schedules for one, _ in rounds), median(each.leading_ms for _, each in rounds)
        yield (
            name,
            {
                "workers": place.workers,
                "one": alone,
                "several": median(several.schedules for _, several in rounds),
                "ratio": median(ratios),
                "lowest": min(ratios),
                "highest": max(ratios),
                "leading_ms": leading,
                # In one process, the one that leads is also the one that plays.
                "served": 1000 / alone / leading,
            },
        )


def _round(name: str, place: _Place, *, options: Options, say: Say) -> tuple[_Rate, _Rate]:
    one, several = (_rate(place, workers=number, options=options) for number in (1, place.workers))
    say(f"{name}: {one.schedules:.1f} schedules a second by one process, {several.schedules:.1f} by {place.workers}")
    return one, several


def _rate(place: _Place, *, workers: int, options: Options) -> _Rate:
    ended: list[tuple[float, float]] = []

    def note(run: Run) -> bool:
        ended.append((time.monotonic(), time.process_time()))
        return False

    load = functools.partial(big, distant=place.distant)
    count = place.count * options.seconds
    explore(load(), load=load, processes=workers, max_schedules=place.first + count, stop_on_first=note)
    (begun, cost), (over, all_cost) = ended[place.first - 1], ended[-1]
    return _Rate(schedules=count / (over - begun), leading_ms=1000 * (all_cost - cost) / count)


def _four_names() -> Sequence[str]:
    names = [f"{story}:{name}" for story in _FOURS for name in STRATEGIES]
    names.remove("ring:serializable")  # its schedules are too many for a benchmark
    return names


def _fours(options: Options, *, say: Say) -> Iterator[tuple[str, dict[str, Any]]]:
    for name in _four_names():
        load = functools.partial(four, name)
        how: dict[str, Any] = {
            "processes": 2,
            "timeout": _FOUR * options.seconds,
            "reduction": _FOURS[name.partition(":")[0]][1],
        }
        found: Exploration = explore(load(), load=load, **how)
        say(f"{name:36} {found.verdict}: {found.schedules} schedules in {found.seconds:.1f} s")
        yield name, {name: getattr(found, name) for name in ("verdict", "schedules", "seconds", "left")}


def _agreement_table(agreed: Mapping[str, Mapping[str, Any]]) -> FigureTable:
    kinds = {
        "ready-made": {name: each for name, each in agreed.items() if not name.startswith(_AT_RANDOM)},
        "random": {name: each for name, each in agreed.items() if name.startswith(_AT_RANDOM)},
    }
    late = sorted(name for name, each in agreed.items() if each["same"] is None)
    return FigureTable(
        title="The same races by one process, by two, and by a cluster of two workers",
        columns=("races", "complete", "schedules by one", "by two", "by the cluster", "most of a race", "other ends"),
        rows=tuple((kind, *_agreement_row(each)) for kind, each in kinds.items() if each),
        notes=(
            "Most of a race: its schedules by two or by the cluster, to those by one.",
            *([f"Out of time: {', '.join(late)}"] if late else ()),
        ),
    )


def _agreement_row(agreed: Mapping[str, Mapping[str, Any]]) -> tuple[Any, ...]:
    complete = {name: each for name, each in agreed.items() if each["same"] is not None}
    totals = [sum(each[by] for each in complete.values()) for by in _EXPLORERS]
    ratios = [each[by] / max(1, each["one"]) for each in complete.values() for by in _EXPLORERS]
    differing = [name for name, each in complete.items() if not each["same"]]
    return (len(complete), *totals, max(ratios, default=0.0), ", ".join(differing) or "none")


def _rate_table(rates: Mapping[str, Mapping[str, Any]]) -> FigureTable:
    return FigureTable(
        title=f"Schedules a second: {_BIG} with {_ACTORS} actors",
        columns=(
            "statements",
            "processes",
            "by one",
            "by all",
            "ratio",
            "lowest",
            "highest",
            "leading process, ms each",
            "workers it serves",
        ),
        rows=tuple((name, *(each[key] for key in _RATE_COLUMNS)) for name, each in rates.items()),
        notes=(_OTHER_ORDER,),
    )


_RATE_COLUMNS = ("workers", "one", "several", "ratio", "lowest", "highest", "leading_ms", "served")


def _four_table(fours: Mapping[str, Mapping[str, Any]], options: Options) -> FigureTable:
    return FigureTable(
        title="Four actors by two processes: equal deposits up to their exchange, rings of transfers",
        columns=("race", "verdict", "schedules", "seconds", "branches left"),
        rows=tuple(
            (name, *(each[key] for key in ("verdict", "schedules", "seconds", "left"))) for name, each in fours.items()
        ),
        notes=(
            f"At most {_FOUR * options.seconds:.0f} s each; incomplete: not finished by then.",
            "Incomplete where no branch is left: in which order several waiters went on, the server alone decided.",
        ),
    )


SUITE = Processes()
