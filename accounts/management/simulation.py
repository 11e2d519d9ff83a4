"""The options of ``manage.py simulate``, and the run that they ask for."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from django.core.management.base import CommandParser
from django.db import connections

from accounts.contrib.dynamodb.strategies import DYNAMO_STRATEGIES
from accounts.engine import EngineName
from accounts.races.dynamodb import StoreConfig, run_story_on_store
from accounts.races.load import Workload
from accounts.races.mix import Mix
from accounts.races.run import (
    NAMES,
    RunConfig,
    account_model,
    default_database,
    run_load,
    run_story,
    run_sweep,
    sweep_points,
)
from accounts.races.stories import STORIES, Story
from accounts.strategies import STRATEGIES
from django_lockstep.lab.output import require_writable
from django_lockstep.lab.simulator.load_plan import LoadPlan, positive_int
from django_lockstep.lab.simulator.render import FORMATS, Report
from django_lockstep.lab.simulator.sweep import Sweep
from django_lockstep.lab.wording import counted

__all__ = ["SimulationRun", "add_arguments", "build_config", "build_run"]

_DURATION = 3.0
_ROUNDS = 3
_PAIR_DURATION = 1.0
"""Seconds for each pair of strategies: there are many, and a loss shows at once."""
_RUNS = 200
_ENGINES: dict[str, tuple[EngineName, ...]] = {
    "plain": ("plain",),
    "compiled": ("compiled",),
    "both": ("plain", "compiled"),
}
_LOAD_ONLY = ("workers", "accounts", "duration", "operations", "mix", "think_time", "seed", "rounds")
_START, _WORKER, _ROUND = 2.0, 0.06, 0.15
"""Seconds besides what is measured: to begin and end, for each worker, and for each round."""


class SimulationRun(NamedTuple):
    """What the options ask for."""

    report: Callable[..., Report]
    """Runs it; takes ``interrupt`` and ``terminal``."""
    announcement: str | None = None
    """What to print before."""


def add_arguments(parser: CommandParser) -> None:
    """Declare what to run; `build_run` checks the values."""
    add, kind = parser.add_argument, parser.add_mutually_exclusive_group()
    add("--strategies", nargs="+", metavar="NAME", help=f"default: all, which are {', '.join(NAMES)}")
    kind.add_argument(
        "--mix-strategies",
        action="store_true",
        default=None,
        help="measure pairs of strategies on shared accounts, half of the workers with either: which of them lose each "
        "other's changes (default: every pair of the strategies that claim to be safe)",
    )
    kind.add_argument(
        "--sweep",
        metavar="WHAT=N,N,...",
        help="the same load at several sizes, workers=1,2,4,8,16,32 or accounts=1,10,100,1000: how throughput and "
        "latency grow",
    )
    kind.add_argument(
        "--clean",
        action="store_true",
        help="run nothing; remove the rows left by runs that were killed or used --keep",
    )
    add("--plot", type=Path, metavar="FILE", help="draw the --sweep, too: .svg or .png (needs the extra 'plot')")
    kind.add_argument(
        "--scenario", choices=list(STORIES), help="instead of a load, run this story of two workers many times"
    )
    add(
        "--store",
        metavar="NAME",
        help="run the --scenario on accounts.contrib.dynamodb, in this store of LOCKSTEP_STORES, with the strategies "
        f"{', '.join(DYNAMO_STRATEGIES)}",
    )
    add("--runs", type=int, metavar="N", help=f"how often a --scenario is run (default: {_RUNS})")
    add(
        "--engine",
        choices=["plain", "compiled", "both"],
        help="plain runs the strategies as they are written, compiled their compiled counterparts, both runs the two "
        "in turn (default: both for a load, plain for a --sweep, a --scenario or --mix-strategies)",
    )
    load = parser.add_argument_group("load")
    load.add_argument("--workers", type=int, metavar="N", help="processes at the same time (default: 8)")
    load.add_argument("--accounts", type=int, metavar="N", help="accounts they share (default: 1, the hot one)")
    limit = load.add_mutually_exclusive_group()
    limit.add_argument("--duration", type=float, metavar="SECONDS", help=f"for each strategy (default: {_DURATION:g})")
    limit.add_argument("--operations", type=int, metavar="N", help="for each strategy, by all workers together")
    load.add_argument(
        "--mix",
        metavar="D:W:T",
        help="weights of deposit:withdraw:transfer (default: 1:1:0 on one account, 1:1:1 on more)",
    )
    load.add_argument("--think-time", type=float, metavar="SECONDS", help="between two operations (default: 0)")
    load.add_argument(
        "--rounds",
        type=int,
        metavar="N",
        help="rounds that the strategies alternate in, so that a slow phase of the machine affects all of them "
        f"(default: {_ROUNDS}; with --operations 1)",
    )
    load.add_argument("--seed", type=int, metavar="N", help="of the random draws (default: another one every time)")


def build_run(options: dict[str, Any]) -> SimulationRun:
    """Return what to run. Raises ``ValueError``, naming the option, for values that are not allowed."""
    if options["plot"]:
        _require_plottable(options)
    if options["scenario"]:
        return _story(options) if options["store"] is None else _story_on_store(options)
    if options["store"] is not None:
        raise ValueError("--store goes with --scenario; a load needs a database")
    if options["runs"] is not None:
        raise ValueError("--runs goes with --scenario; a load is limited by --duration or --operations")
    return _load(options) if options["sweep"] is None else _sweep(options)


def _require_plottable(options: dict[str, Any]) -> None:
    path = Path(options["plot"])
    if options["sweep"] is None:
        raise ValueError("--plot draws a sweep: add --sweep workers=1,2,4,8 or the like")
    if path.suffix.removeprefix(".") not in FORMATS:
        raise ValueError(f"--plot {path}: its name must end with {' or '.join(f'.{form}' for form in FORMATS)}")
    require_writable(path, option="--plot")


def _load(options: dict[str, Any]) -> SimulationRun:
    if options["mix_strategies"]:
        return _mixtures(options)
    plan, workload = _plan(options), _workload(options)
    return SimulationRun(
        functools.partial(run_load, build_config(options, engine="both"), plan=plan, workload=workload)
    )


def _mixtures(options: dict[str, Any]) -> SimulationRun:
    plan, workload, config = _plan(options, seconds=_PAIR_DURATION, rounds=1), _workload(options), build_config(options)
    if plan.workers < 2 or len(config.strategies) < 2:
        raise ValueError(
            "--mix-strategies needs at least two strategies and two workers, not "
            f"{counted(len(config.strategies), 'strategy', 'strategies')} and {counted(plan.workers, 'worker')}"
        )
    announcement = _announced([plan], contenders=len(config.names), what=counted(len(config.names), "pair"))
    return SimulationRun(functools.partial(run_load, config, plan=plan, workload=workload), announcement)


def _sweep(options: dict[str, Any]) -> SimulationRun:
    sweep = Sweep.parse(options["sweep"])
    if options[sweep.axis] is not None:
        raise ValueError(f"--{sweep.axis} is what --sweep varies: name its values there only")
    sizes: dict[str, Any] = {sweep.axis: max(sweep.values)}
    # The smallest size decides what all can do: one account has no transfers.
    workload = _workload({**options, **sizes}, smallest=min(sweep.values) if sweep.axis == "accounts" else None)
    # Checked with the largest size, so that no size is refused after the others were measured.
    points = sweep_points(sweep, plan=_plan({**options, **sizes}), workload=workload)
    config = build_config(options)
    number = len(config.strategies)
    what = f"{counted(len(points), 'size')} x {counted(number, 'strategy', 'strategies')}"
    announcement = _announced([point.plan for point in points], contenders=number, what=what)
    return SimulationRun(functools.partial(run_sweep, config, sweep=sweep, points=points), announcement)


def _announced(plans: list[LoadPlan], *, contenders: int, what: str) -> str:
    """Say how much it is, and about how long it takes where that is known."""
    what = f"{what} x {plans[-1].extent}"
    if plans[-1].duration is None:
        return f"{what}."
    measured = sum(plan.duration or 0 for plan in plans) * contenders
    seconds = (
        measured
        + _START
        + _WORKER * max(plan.workers for plan in plans)
        + _ROUND * contenders * sum(plan.rounds for plan in plans)
    )
    return f"{what}: about {seconds:.0f} s." if seconds < 100 else f"{what}: about {seconds / 60:.1f} minutes."


def _plan(options: dict[str, Any], *, seconds: float = _DURATION, rounds: int = _ROUNDS) -> LoadPlan:
    names = ("workers", "duration", "operations", "think_time", "rounds")
    given = {name: options[name] for name in names if options[name] is not None}
    by_time = {"duration": seconds, "rounds": rounds} if options["operations"] is None else {"duration": None}
    return LoadPlan(**{**by_time, **given})


def _workload(options: dict[str, Any], *, smallest: int | None = None) -> Workload:
    accounts = 1 if options["accounts"] is None else positive_int(options["accounts"], name="--accounts")
    fewest = accounts if smallest is None else smallest
    mix = Mix.default(accounts=fewest) if options["mix"] is None else Mix.parse(options["mix"])
    # Another one every time, but printed in the report: any run can be repeated.
    seed = random.SystemRandom().randrange(10**6) if options["seed"] is None else options["seed"]
    return Workload(accounts=accounts, mix=mix, seed=seed)


def _story(options: dict[str, Any]) -> SimulationRun:
    story, runs = _story_and_runs(options)
    return SimulationRun(functools.partial(run_story, build_config(options), story=story, runs=runs))


def _story_on_store(options: dict[str, Any]) -> SimulationRun:
    story, runs = _story_and_runs(options)
    if wrong := [f"--{name}" for name in ("database", "engine") if options[name] is not None]:
        raise ValueError(f"--store has accounts of another kind; {', '.join(wrong)} is for databases only")
    config = StoreConfig(
        store=options["store"], strategies=_strategies(options, tuple(DYNAMO_STRATEGIES)), keep=options["keep"]
    )
    return SimulationRun(functools.partial(run_story_on_store, config, story=story, runs=runs))


def _story_and_runs(options: dict[str, Any]) -> tuple[Story, int]:
    meant_for_load = [f"--{name.replace('_', '-')}" for name in _LOAD_ONLY if options[name] is not None]
    if meant_for_load:
        raise ValueError(f"--scenario has two workers on one account; {', '.join(meant_for_load)} is for loads only")
    runs = positive_int(_RUNS if options["runs"] is None else options["runs"], name="--runs")
    return STORIES[options["scenario"]], runs


def build_config(options: dict[str, Any], *, engine: str = "plain") -> RunConfig:
    """Return which strategies run and where, with this engine by default. Raises ``ValueError`` as `build_run` does."""
    # A pair with a strategy that loses money by itself would say nothing about the pair.
    mixed = bool(options["mix_strategies"])
    by_default = [name for name in NAMES if STRATEGIES[name].safe] if mixed else NAMES
    names = _strategies(options, NAMES, by_default)
    model = account_model(options["model"])
    using = options["database"] or default_database(model)
    if using not in connections:
        raise ValueError(f"--database must be one of {', '.join(connections)}, not {using!r}")
    chosen = options["engine"] or engine
    # Mixtures, stories and sweeps compare something else; twice as many rows would hide it.
    if chosen == "both" != engine:
        raise ValueError("--engine both is for a load without --mix-strategies; all else runs plain or compiled")
    if chosen == "compiled" and not any(strategy.has_counterpart for strategy in STRATEGIES.values()):
        raise ValueError("--engine compiled needs 'accounts.contrib.compiled' in INSTALLED_APPS")
    return RunConfig(
        strategies=names,
        model=model,
        using=using,
        keep=options["keep"],
        engines=_ENGINES[chosen],
        mixed=mixed,
    )


def _strategies(options: dict[str, Any], known: Sequence[str], by_default: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the strategies that the option names. Raises ``ValueError`` for an unknown one, and for none."""
    words = [word for part in options["strategies"] or by_default or known for word in part.split(",")]
    names = tuple(dict.fromkeys(word.strip() for word in words if word.strip()))
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise ValueError(f"--strategies must be some of {', '.join(known)}, not {', '.join(unknown) or 'none'}")
    return names
