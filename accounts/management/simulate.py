"""The command `simulate`: it reads options, prints a report, and turns what it says into an exit status."""

from __future__ import annotations

import contextlib
import random
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import InterfaceError, OperationalError, connections, router

from accounts.binding import account_model
from accounts.races.fixture import Fixture, PurgeError
from accounts.races.load import Mix, Workload
from accounts.races.run import NAMES, RunConfig, run_load, sizes_of
from accounts.strategies import STRATEGIES
from django_lockstep.lab.output import require_writable, write_atomically
from django_lockstep.lab.simulator.errors import SimulationError
from django_lockstep.lab.simulator.interrupt import StopSignal
from django_lockstep.lab.simulator.load_plan import LoadPlan, Sweep, positive_int
from django_lockstep.lab.simulator.render import FORMATS, as_json, as_plot, as_table, require_matplotlib
from django_lockstep.lab.simulator.report import LoadReport
from django_lockstep.lab.tables import width
from django_lockstep.lab.wording import counted

_DURATION = 3.0
_ROUNDS = 3
_PAIR_DURATION = 1.0
"""Seconds for each pair of strategies: there are many, and a loss shows at once."""
_START, _WORKER, _ROUND = 2.0, 0.06, 0.15
"""Seconds besides what is measured: to begin and end, for each worker, and for each round."""


class Command(BaseCommand):
    """Reads options, prints a report, and turns what it says into an exit status."""

    help = (
        "Change the balance of shared accounts from worker processes on the configured PostgreSQL, with each strategy "
        "in turn, and show which of them lose money and what the others cost; with --sweep, how both grow with the "
        "number of workers. It writes only to rows of its own and removes them at the end; --clean removes those of "
        "runs that were killed. Exit status: 0; 1 if --check found a broken promise; 2 for wrong usage; 130 after "
        "Ctrl-C."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options; `build_run` and what it builds check their values."""
        add, kind = parser.add_argument, parser.add_mutually_exclusive_group()
        add("--strategies", nargs="+", metavar="NAME", help=f"default: all, which are {', '.join(NAMES)}")
        kind.add_argument(
            "--mix-strategies",
            action="store_true",
            default=None,
            help="measure pairs of strategies on shared accounts, half of the workers with either: which of them "
            "lose each other's changes (default: every pair of the strategies that claim to be safe)",
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
        load = parser.add_argument_group("load")
        load.add_argument("--workers", type=int, metavar="N", help="processes at the same time (default: 8)")
        load.add_argument("--accounts", type=int, metavar="N", help="accounts they share (default: 1, the hot one)")
        limit = load.add_mutually_exclusive_group()
        limit.add_argument(
            "--duration", type=float, metavar="SECONDS", help=f"for each strategy (default: {_DURATION:g})"
        )
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
        add("--model", default="accounts.Account", metavar="APP.MODEL", help="account model (default: %(default)s)")
        add("--database", metavar="ALIAS", help="where the accounts are made (default: where the model is written)")
        add("--format", choices=["table", "json"], default="table", help="of the report (default: %(default)s)")
        add("--output", type=Path, metavar="FILE", help="write the report there instead of to the standard output")
        add("--check", action="store_true", help="exit with 1 if a strategy that claims to be safe was wrong")
        add("--keep", action="store_true", help="leave the accounts and their entries in the database")

    def handle(self, *args: object, **options: Any) -> None:
        """Run and report. Raises ``CommandError`` with the exit status."""
        if options["clean"]:
            self._clean(options)
            return
        with _wrong_usage():
            # Before the run: minutes of measuring are not to end in a file that cannot be written.
            if options["output"]:
                require_writable(Path(options["output"]))
            run, announcement = build_run(options)
        with _report_errors():
            # Also before: the package that draws may not be installed.
            if options["plot"]:
                require_matplotlib()
            if announcement:
                self.stderr.write(announcement, str)  # not in the colour of errors
            with StopSignal() as interrupt:
                report = run(interrupt=interrupt, terminal=sys.stderr if self.stderr.isatty() else None)
        self._show(report, options)
        # An interrupted run proves nothing either way: it ends before its promises are checked.
        if interrupt.signal is not None:
            name = signal.Signals(interrupt.signal).name
            raise CommandError(f"Interrupted by {name}", returncode=128 + interrupt.signal)
        broken = dict.fromkeys(row.strategy for row in report.rows if row.breaks_promise)
        if options["check"] and broken:
            raise CommandError(f"Claimed to be safe but was wrong: {', '.join(broken)}", returncode=1)

    def _clean(self, options: dict[str, Any]) -> None:
        with _wrong_usage():
            config = build_config(options)
        failed = []
        with _report_errors():
            fixtures = list(Fixture.left_behind(config.model, using=config.using))
            for fixture in fixtures:
                try:
                    purged = fixture.purge_if_over()
                except PurgeError as error:
                    failed.append(fixture.name)
                    self.stderr.write(f"{fixture.name}: {error}")
                else:
                    self.stdout.write(f"{fixture.name}: {'removed' if purged else 'skipped: still running'}")
        if not fixtures:
            self.stdout.write("No rows of an earlier simulation are left.")
        if failed:
            raise CommandError(f"Could not remove {', '.join(failed)}", returncode=1)

    def _show(self, report: LoadReport, options: dict[str, Any]) -> None:
        terminal = not options["output"] and (self.stdout.isatty() or options["force_color"])
        if options["format"] == "table":
            text = as_table(report, width=width(terminal=terminal), colour=terminal and not options["no_color"])
        else:
            text = as_json(report)
            for note in report.notes:
                self.stderr.write(note)
        if options["output"]:
            write_atomically(Path(options["output"]), text)
        else:
            self.stdout.write(text)
        if options["plot"] and report.rows:
            path = Path(options["plot"])
            write_atomically(path, as_plot(report, form=path.suffix.removeprefix(".")))


@contextlib.contextmanager
def _wrong_usage() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise CommandError(str(error), returncode=2) from error


@contextlib.contextmanager
def _report_errors() -> Iterator[None]:
    """Turn what keeps the simulation from running into a ``CommandError``."""
    try:
        yield
    except (SimulationError, OperationalError, InterfaceError) as error:
        raise CommandError(str(error).strip()) from error
    except KeyboardInterrupt as error:
        raise CommandError("Interrupted twice: ended without a report", returncode=130) from error


def build_run(options: dict[str, Any]) -> tuple[Callable[..., LoadReport], str]:
    """Return what to run, with ``interrupt`` and ``terminal``, and what to say before.

    Raises ``ValueError``, naming the option, for a wrong value.
    """
    if options["plot"]:
        _require_drawable(Path(options["plot"]), options)
    sweep = None if options["sweep"] is None else Sweep.parse(options["sweep"])
    mixed = bool(options["mix_strategies"])
    if sweep:
        if options[sweep.axis] is not None:
            raise ValueError(f"--{sweep.axis} is what --sweep varies: name its values there only")
        options = {**options, sweep.axis: max(sweep.values)}
    config = build_config(options)
    plan = _plan(options, seconds=_PAIR_DURATION, rounds=1) if mixed else _plan(options)
    # The smallest size decides what all can do: one account has no transfers.
    workload = _workload(options, fewest=min(sweep.values) if sweep and sweep.axis == "accounts" else None)
    if mixed and (plan.workers < 2 or len(config.strategies) < 2):
        raise ValueError(
            "--mix-strategies needs at least two strategies and two workers, not "
            f"{counted(len(config.strategies), 'strategy', 'strategies')} and {counted(plan.workers, 'worker')}"
        )
    # Now, so that no size is refused after the others were measured.
    plans = [plan for _, plan, _ in sizes_of(sweep, plan=plan, workload=workload)]
    announcements = []
    missing = [name for name in NAMES if not STRATEGIES[name].is_installed]
    if missing and not options["strategies"]:
        announcements.append(f"Without {', '.join(missing)}, whose package is not installed.")
    if sweep or mixed:
        announcements.append(_extent(plans, contenders=len(config.names), mixed=mixed))
    return partial(run_load, config, plan=plan, workload=workload, sweep=sweep), "\n".join(announcements)


def _require_drawable(path: Path, options: dict[str, Any]) -> None:
    if options["sweep"] is None:
        raise ValueError("--plot goes with --sweep")
    if path.suffix.removeprefix(".") not in FORMATS:
        raise ValueError(f"--plot {path}: its name must end with {' or '.join(f'.{form}' for form in FORMATS)}")
    require_writable(path, option="--plot")


def _extent(plans: Sequence[LoadPlan], *, contenders: int, mixed: bool) -> str:
    """Say how much it is, and about how long it takes where that is known."""
    what = counted(contenders, "pair")
    if not mixed:
        what = f"{counted(len(plans), 'size')} x {counted(contenders, 'strategy', 'strategies')}"
    what = f"{what} x {plans[-1].extent}"
    if plans[-1].duration is None:
        return f"{what}."
    measured = contenders * sum((plan.duration or 0) + _ROUND * plan.rounds for plan in plans)
    seconds = _START + _WORKER * max(plan.workers for plan in plans) + measured
    return f"{what}: about {seconds:.0f} s." if seconds < 100 else f"{what}: about {seconds / 60:.1f} minutes."


def _plan(options: dict[str, Any], *, seconds: float = _DURATION, rounds: int = _ROUNDS) -> LoadPlan:
    names = ("workers", "duration", "operations", "think_time", "rounds")
    values = {name: options[name] for name in names if options[name] is not None}
    by_time = {"duration": seconds, "rounds": rounds} if options["operations"] is None else {"duration": None}
    return LoadPlan(**{**by_time, **values})


def _workload(options: dict[str, Any], *, fewest: int | None) -> Workload:
    accounts = 1 if options["accounts"] is None else positive_int(options["accounts"], name="--accounts")
    mix = Mix.default(accounts=fewest or accounts) if options["mix"] is None else Mix.parse(options["mix"])
    # Another one every time, but printed in the report: any run can be repeated.
    seed = random.SystemRandom().randrange(10**6) if options["seed"] is None else options["seed"]
    return Workload(accounts=accounts, mix=mix, seed=seed)


def build_config(options: dict[str, Any]) -> RunConfig:
    """Return which strategies run and where. Raises ``ValueError`` as `build_run` does."""
    # A pair with a strategy that loses money by itself would say nothing about the pair.
    mixed = bool(options["mix_strategies"])
    by_default = [name for name in NAMES if STRATEGIES[name].is_installed and (STRATEGIES[name].safe or not mixed)]
    names = _strategies(options["strategies"] or by_default)
    for name in names:
        if not STRATEGIES[name].is_installed:
            raise ValueError(f"--strategies {name}: the package of {STRATEGIES[name].package!r} is not installed")
    model = account_model(options["model"])
    using = options["database"] or router.db_for_write(model)
    if using not in connections:
        raise ValueError(f"--database must be one of {', '.join(connections)}, not {using!r}")
    return RunConfig(strategies=names, model=model, using=using, keep=options["keep"], mixed=mixed)


def _strategies(chosen: Sequence[str]) -> tuple[str, ...]:
    """Return the strategies that the option names. Raises ``ValueError`` for an unknown one, and for none."""
    words = [word for part in chosen for word in part.split(",")]
    names = tuple(dict.fromkeys(word.strip() for word in words if word.strip()))
    unknown = [name for name in names if name not in NAMES]
    if unknown or not names:
        raise ValueError(f"--strategies must be some of {', '.join(NAMES)}, not {', '.join(unknown) or 'none'}")
    return names
