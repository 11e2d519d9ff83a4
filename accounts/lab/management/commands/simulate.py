"""``manage.py simulate``: real processes race for an account, with every strategy in turn."""

from __future__ import annotations

import contextlib
import functools
import random
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections

from accounts.lab.management.output import require_writable, write_atomically
from accounts.lab.scenarios.mix import Mix
from accounts.lab.scenarios.run import NAMES, Field, Scene, account_model, default_database, run_load, run_story
from accounts.lab.scenarios.stories import STORIES
from accounts.lab.simulator.errors import SimulationError
from accounts.lab.simulator.interrupt import Interrupt
from accounts.lab.simulator.plan import Plan, whole_number
from accounts.lab.simulator.render import as_csv, as_json, as_table, require_rich
from accounts.lab.simulator.report import LoadReport
from accounts.lab.simulator.rounds import StoryReport

Report = LoadReport | StoryReport

_DURATION = 3.0
_ROUNDS = 200
_LOAD_ONLY = ("workers", "accounts", "duration", "operations", "mix", "think_time", "seed")
_WIDEST = 100
_PIPED = 80


class Command(BaseCommand):
    """Reads options, prints a report, and turns what it says into an exit status."""

    help = (
        "Let worker processes race for an account on the configured PostgreSQL, with each way of changing a balance "
        "in turn, and show which of them lose money and what the others cost. All rows that it writes are its own, and "
        "are removed at the end. Exit status: 0; 1 if --check found a broken promise; 2 for wrong usage; 130 after "
        "Ctrl-C."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options; what they become checks their values."""
        add = parser.add_argument
        add("--strategies", nargs="+", metavar="NAME", help=f"default: all, which are {', '.join(NAMES)}")
        add("--scenario", choices=list(STORIES), help="instead of a load, play this story of two workers many times")
        add("--rounds", type=int, metavar="N", help=f"how often a --scenario is played (default: {_ROUNDS})")
        _add_load_arguments(parser)
        add("--model", default="accounts.Account", metavar="APP.MODEL", help="account model (default: %(default)s)")
        add("--database", metavar="ALIAS", help="where the accounts are made (default: where the model is written)")
        add("--format", choices=["table", "json", "csv"], default="table", help="of the report (default: %(default)s)")
        add("--output", type=Path, metavar="FILE", help="write the report there instead of to the standard output")
        add("--check", action="store_true", help="exit with 1 if a strategy that claims to be safe was not right")
        add("--keep", action="store_true", help="leave the accounts and their entries in the database")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run and report. Raises ``CommandError`` with the exit status."""
        with _wrong_usage():
            if options["output"]:
                require_writable(Path(options["output"]))
            run = _story(options) if options["scenario"] else _load(options)
        try:
            if options["format"] == "table":
                require_rich()
            with Interrupt() as interrupt:
                report = run(interrupt=interrupt, terminal=sys.stderr if self.stderr.isatty() else None)
        except SimulationError as error:
            raise CommandError(str(error)) from error
        except KeyboardInterrupt as error:
            raise CommandError("Interrupted twice: ended without a report", returncode=130) from error
        self._show(report, options)
        _end(report, interrupted=interrupt.signal, check=options["check"])

    def _show(self, report: Report, options: dict[str, Any]) -> None:
        if options["output"]:
            write_atomically(Path(options["output"]), self._rendered(report, options, terminal=False))
        else:
            terminal = self.stdout.isatty() or options["force_color"]
            self.stdout.write(self._rendered(report, options, terminal=terminal))
        if options["format"] != "table":
            for note in report.notes:
                self.stderr.write(note)

    def _rendered(self, report: Report, options: dict[str, Any], *, terminal: bool) -> str:
        if options["format"] == "json":
            return as_json(report)
        if options["format"] == "csv":
            return as_csv(report)
        width = min(shutil.get_terminal_size((_PIPED, 24)).columns, _WIDEST) if terminal else _PIPED
        return as_table(report, width=width, colour=terminal and not options["no_color"])


def _add_load_arguments(parser: CommandParser) -> None:
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
    load.add_argument("--seed", type=int, metavar="N", help="of the random draws (default: another one every time)")


@contextlib.contextmanager
def _wrong_usage() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise CommandError(str(error), returncode=2) from error


def _load(options: dict[str, Any]) -> Callable[..., Report]:
    """Return what runs the load; it takes ``interrupt`` and ``terminal``. Raises ``ValueError`` for wrong options."""
    if options["rounds"] is not None:
        raise ValueError("--rounds goes with --scenario; a load is limited by --duration or --operations")
    given = {name: options[name] for name in ("workers", "operations", "think_time") if options[name] is not None}
    if options["duration"] is not None or options["operations"] is None:
        given["duration"] = _DURATION if options["duration"] is None else options["duration"]
    plan = Plan(**{"duration": None, **given})
    accounts = 1 if options["accounts"] is None else whole_number(options["accounts"], name="--accounts")
    mix = Mix.default(accounts=accounts) if options["mix"] is None else Mix.parse(options["mix"])
    seed = random.SystemRandom().randrange(10**6) if options["seed"] is None else options["seed"]
    field = Field(accounts=accounts, mix=mix, seed=seed)
    return functools.partial(run_load, _scene(options), plan=plan, field=field)


def _story(options: dict[str, Any]) -> Callable[..., Report]:
    """Return what runs the story; as `_load`."""
    meant_for_load = [f"--{name.replace('_', '-')}" for name in _LOAD_ONLY if options[name] is not None]
    if meant_for_load:
        raise ValueError(f"--scenario has two workers on one account; {', '.join(meant_for_load)} is for loads only")
    rounds = whole_number(_ROUNDS if options["rounds"] is None else options["rounds"], name="--rounds")
    return functools.partial(run_story, _scene(options), story=STORIES[options["scenario"]], rounds=rounds)


def _scene(options: dict[str, Any]) -> Scene:
    words = [word for part in options["strategies"] or NAMES for word in part.split(",")]
    names = tuple(dict.fromkeys(word.strip() for word in words if word.strip()))
    unknown = [name for name in names if name not in NAMES]
    if unknown or not names:
        raise ValueError(f"--strategies: there is no {', '.join(unknown) or 'name'}; there are {', '.join(NAMES)}")
    model = account_model(options["model"])
    using = options["database"] or default_database(model)
    if using not in connections:
        raise ValueError(f"--database {using}: there is no such database; there are {', '.join(connections)}")
    return Scene(strategies=names, model=model, using=using, keep=options["keep"])


def _end(report: Report, *, interrupted: int | None, check: bool) -> None:
    """Raise ``CommandError`` where the exit status is not 0."""
    if interrupted is not None:
        raise CommandError(f"Interrupted by {signal.Signals(interrupted).name}", returncode=128 + interrupted)
    broken = [row.strategy for row in report.rows if row.breaks_promise]
    if check and broken:
        raise CommandError(f"Claims to be safe, and was not right: {', '.join(broken)}", returncode=1)
