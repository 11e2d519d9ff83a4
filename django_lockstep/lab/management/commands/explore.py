"""The command that explores races from the shell."""

from __future__ import annotations

import functools
import shutil
import time
from argparse import ArgumentParser, BooleanOptionalAction
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, get_args

from django.core.management.base import BaseCommand, CommandError
from django.db import DEFAULT_DB_ALIAS, connections
from rich.console import Console
from rich.live import Live
from rich.text import Text

from django_lockstep.lab.explorer import ExplorerError, explore, replay, svg, write_spec
from django_lockstep.lab.explorer.explore import runs_to_draw
from django_lockstep.lab.explorer.options import Options, Reduction
from django_lockstep.lab.explorer.render.reports import FORMATS, RaceReport, as_text, format_of
from django_lockstep.lab.explorer.results import Run
from django_lockstep.lab.explorer.tables.databases import is_test_database
from django_lockstep.lab.explorer.tables.scratch import scratch_databases
from django_lockstep.lab.output import require_writable, write_atomically
from django_lockstep.lab.races import Race, find_race, load_scenario, registered_races
from django_lockstep.lab.wording import counted

_DRAWN = {"svg": 1, "html": 4}
"""How many runs of a race a format shows."""
_REFRESH = 0.1
"""Seconds between two lines of progress, at least."""
_LIMITS = ("directed", "reduction", "max_schedules", "timeout", "processes", "cluster", "audit")


class Command(BaseCommand):
    """Explores scenarios; a thin shell over `explore` and `replay`."""

    help = (
        "Run scenarios through every interleaving of their SQL statements, and show the simplest one that ends wrong. "
        "It runs on a scratch database, which it creates from the project's migrations and drops at the end, unless "
        "another one is named and confirmed. Exit status: 0; 1 if the result of a race is not the expected one; 2 for "
        "wrong usage; 3 if the search has missed an outcome, so that what it says of this race is not to be trusted."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("scenarios", nargs="*", help="names from --list, or dotted paths of your own Scenario objects")
        add("--list", action="store_true", help="list the registered scenarios")
        add("--schedule", help="run only this schedule, such as AABBAB")
        add("--spec", type=Path, help="also write the schedule, or the simplest wrong one, for isolationtester")
        add("--actors", type=int, metavar="N", help="run the scenario with N actors, if it can have more than it has")
        add("--directed", action="store_true", help="interrupt actors only just before or after their writes and locks")
        add("--reduction", choices=get_args(Reduction), default="dpor")
        add("--processes", type=int, default=1, metavar="N", help="explore each race with N processes (default: 1)")
        add("--cluster", metavar="tcp://HOST:PORT", help="explore on the workers of this Dask scheduler")
        add("--max-schedules", type=int)
        add("--audit", type=int, metavar="N", help="random walks that check a search (default: LOCKSTEP_LAB_AUDIT, 20)")
        add("--timeout", type=float, help="seconds after which no further schedule is started")
        add("--format", choices=[*FORMATS, "svg"], help="default: by the ending of --output, or text; svg draws a race")
        add("--output", type=Path, help="write to this file instead of standard output")
        add("--progress", action=BooleanOptionalAction, default=True, help="show on a terminal how far a race is")
        add("--database", metavar="ALIAS", help="run on this database of the project instead of a scratch database")
        add(
            "--yes-this-database-is-mine",
            action="store_true",
            help="confirm that the rows of --database are not needed: what others commit during the run is lost",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Explore the named scenarios, or all registered ones. Raises ``CommandError`` with the exit status."""
        options["format"] = options["format"] or format_of(options["output"])
        # Everything that can be refused is refused before a database is created.
        with _wrong_usage(ImportError, TypeError, ValueError):
            if options["list"]:
                self.stdout.write("\n".join(f"{race.name:36} {race.text}" for race in registered_races().values()))
                return
            names = options["scenarios"] or list(registered_races())
            races = [find_race(name, actors=options["actors"]) for name in names]
            _require_consistent(races, options)
        with _wrong_usage(ExplorerError), self._database(options) as common:
            reports = [
                self._report(race, options, f"{number}/{len(races)} {race.name}", found_by=name, **common)
                for number, (name, race) in enumerate(zip(names, races, strict=True), start=1)
            ]
            # Inside the block: the spec replays the schedule, for which the scratch database must still exist.
            spec = ""
            if options["spec"]:
                # Of the given schedule, of the simplest wrong one, or of the one without preemption.
                exploration = reports[0].exploration
                wrong = exploration.failure if exploration else reports[0].runs[0]
                spec = write_spec(races[0].scenario, wrong.schedule if wrong else "", **common).text
        self._show(reports, options)
        if options["spec"]:
            write_atomically(options["spec"], spec)
        unexpected = [report for report in reports if not report.as_expected]
        if unexpected and options["schedule"] is not None:
            raise CommandError(
                f"{unexpected[0].name}: schedule {reports[0].runs[0].schedule} ended wrong", returncode=1
            )
        if unexpected:
            listed = "\n".join(f"{report.name}: {_reason(report)}" for report in unexpected)
            missed = any(report.exploration and report.exploration.verdict == "missed" for report in unexpected)
            raise CommandError(f"Not as expected: {listed}", returncode=3 if missed else 1)

    @contextmanager
    def _database(self, options: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Provide the database to run on; yields it as options of `explore`."""
        alias = options["database"] or DEFAULT_DB_ALIAS
        if options["database"] is None and not is_test_database(connections[alias]):
            with scratch_databases():
                yield {"database": alias}
            return
        yield {"database": alias, "database_is_mine": options["yes_this_database_is_mine"]}

    def _report(
        self, race: Race, options: dict[str, Any], progress: str, *, found_by: str, **common: Any
    ) -> RaceReport:
        report = functools.partial(RaceReport, name=race.name, text=race.text)
        if options["schedule"] is not None:
            run = replay(race.scenario, options["schedule"], **common)
            return report(runs=(run,), as_expected=run.holds or not race.holds)
        with self._progress(progress, shown=options["progress"]) as count:
            load = functools.partial(load_scenario, found_by, actors=options["actors"])
            limits = {name: options[name] for name in _LIMITS}
            exploration = explore(race.scenario, **common, load=load, **limits, stop_on_first=count)
            runs = runs_to_draw(race.scenario, exploration, most=_DRAWN.get(options["format"], 0), **common)
            return report(exploration=exploration, runs=tuple(runs), as_expected=race.as_expected(exploration))

    @contextmanager
    def _progress(self, line: str, *, shown: bool) -> Iterator[Literal[False] | Callable[[Run], bool]]:
        """Show how far a race is in a line on the terminal, and erase it afterwards.

        Yields what is to be called with each run, of whichever process; False without a terminal.
        """
        if not (shown and self.stderr.isatty()):
            yield False
            return
        ends: Counter[bool] = Counter()
        due = 0.0
        # Not by Django's wrapper of the stream, which ends lines; and without a thread that would take time from races.
        stream: Any = self.stderr._out
        options: Any = {"auto_refresh": False, "transient": True, "redirect_stdout": False, "redirect_stderr": False}
        with Live(Text(line), console=Console(file=stream), **options) as live:

            def count(run: Run) -> bool:
                nonlocal due
                ends[run.holds] += 1
                if (now := time.monotonic()) >= due:
                    due = now + _REFRESH
                    wrong = f", {ends[False]:,} wrong" if ends[False] else ""
                    text = f"{line}: {counted(ends.total(), 'schedule')}{wrong}"
                    live.update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)
                return False  # the search goes on

            yield count

    def _show(self, reports: Sequence[RaceReport], options: dict[str, Any]) -> None:
        form, path = options["format"], options["output"]
        if form == "text" and path is None and self.stdout.isatty():
            self._write(as_text(reports, columns=shutil.get_terminal_size().columns), path)
            return
        if form != "svg":
            self._write(FORMATS[form](reports), path)
            return
        (report,) = reports
        if not report.runs:
            raise CommandError(f"{report.name} has no run to draw: {_reason(report)}", returncode=1)
        self._write(svg(report.runs[0]), path)

    def _write(self, text: str, path: Path | None) -> None:
        if path is None:
            self.stdout.write(text)
        else:
            write_atomically(path, text)


@contextmanager
def _wrong_usage(*errors: type[Exception]) -> Iterator[None]:
    try:
        yield
    except errors as error:
        raise CommandError(str(error), returncode=2) from error


def _require_consistent(races: Sequence[Race], options: dict[str, Any]) -> None:
    """Raise ``ValueError`` for options that exclude each other, before anything is run."""
    path, database = options["output"], options["database"]
    chosen = {name: options[name] for name in ("directed", "reduction", "processes", "cluster")}
    Options(**chosen, audit=options["audit"] or 0)
    _require_one_process(options)
    if options["schedule"] is not None and len(races) != 1:
        raise ValueError(f"--schedule needs exactly one scenario, not {len(races)}")
    if options["spec"] is not None:
        if len(races) != 1:
            raise ValueError(f"--spec needs exactly one scenario, not {len(races)}")
        require_writable(options["spec"])
    if options["format"] == "svg" and len(races) != 1:
        raise ValueError(f"--format svg draws one race, not {len(races)}: name one")
    if database is None and options["yes_this_database_is_mine"]:
        raise ValueError("--yes-this-database-is-mine needs --database")
    if database is not None and database not in connections:
        raise ValueError(f"--database must be one of {', '.join(connections)}, not {database!r}")
    if path is not None:
        require_writable(path)


def _require_one_process(options: dict[str, Any]) -> None:
    """Raise ``ValueError`` for several processes, here or on a cluster, with options that need one."""
    if options["processes"] == 1 and options["cluster"] is None:
        return
    option = "--processes" if options["cluster"] is None else "--cluster"
    if options["schedule"] is not None:
        raise ValueError(f"{option} explores, and --schedule runs one schedule: leave one of them out")
    if options["database"] is not None:
        raise ValueError(f"{option} needs a scratch database for each process: leave out --database")


def _reason(report: RaceReport) -> str:
    return report.exploration.reason if report.exploration else ""
