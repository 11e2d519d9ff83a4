"""The command `simulate`: it reads options, prints a report, and turns what it says into an exit status."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import InterfaceError, OperationalError

from accounts.management.simulation import add_arguments, build_config, build_run
from accounts.races.fixture import Fixture, PurgeError
from django_lockstep.lab.output import require_writable, write_atomically
from django_lockstep.lab.simulator.errors import SimulationError
from django_lockstep.lab.simulator.interrupt import StopSignal
from django_lockstep.lab.simulator.render import as_csv, as_json, as_plot, as_table, require_matplotlib
from django_lockstep.lab.simulator.report import LoadReport
from django_lockstep.lab.simulator.stories import StoryReport
from django_lockstep.lab.tables import width


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
        add_arguments(parser)
        add = parser.add_argument
        add("--model", default="accounts.Account", metavar="APP.MODEL", help="account model (default: %(default)s)")
        add("--database", metavar="ALIAS", help="where the accounts are made (default: where the model is written)")
        add("--format", choices=["table", "json", "csv"], default="table", help="of the report (default: %(default)s)")
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
            run = build_run(options)
        with _report_errors():
            # Also before: the package that draws may not be installed.
            if options["plot"]:
                require_matplotlib()
            if run.announcement:
                self.stderr.write(run.announcement, str)  # not in the colour of errors
            with StopSignal() as interrupt:
                report = run.report(interrupt=interrupt, terminal=sys.stderr if self.stderr.isatty() else None)
        self._show(report, options)
        _end(report, interrupted=interrupt.signal, check=options["check"])

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

    def _show(self, report: LoadReport | StoryReport, options: dict[str, Any]) -> None:
        if options["output"]:
            write_atomically(Path(options["output"]), self._rendered(report, options, terminal=False))
        else:
            terminal = self.stdout.isatty() or options["force_color"]
            self.stdout.write(self._rendered(report, options, terminal=terminal))
        if options["format"] != "table":
            for note in report.notes:
                self.stderr.write(note)
        if options["plot"] and isinstance(report, LoadReport) and report.rows:
            path = Path(options["plot"])
            write_atomically(path, as_plot(report, form=path.suffix.removeprefix(".")))

    def _rendered(self, report: LoadReport | StoryReport, options: dict[str, Any], *, terminal: bool) -> str:
        if options["format"] == "json":
            return as_json(report)
        if options["format"] == "csv":
            return as_csv(report)
        return as_table(report, width=width(terminal=terminal), colour=terminal and not options["no_color"])


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


def _end(report: LoadReport | StoryReport, *, interrupted: int | None, check: bool) -> None:
    """Raise ``CommandError`` where the exit status is not 0."""
    if interrupted is not None:
        raise CommandError(f"Interrupted by {signal.Signals(interrupted).name}", returncode=128 + interrupted)
    # An interrupted run proves nothing either way: it ends before its promises are checked.
    rows = (*report.rows, *getattr(report, "counterparts", ()))
    broken = dict.fromkeys(row.strategy for row in rows if row.breaks_promise)
    if check and broken:
        raise CommandError(f"Claimed to be safe but was wrong: {', '.join(broken)}", returncode=1)
