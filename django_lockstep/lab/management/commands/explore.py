"""The command that explores races from the shell."""

from __future__ import annotations

import re
import shutil
from argparse import ArgumentParser, BooleanOptionalAction
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DEFAULT_DB_ALIAS, connections

from django_lockstep.lab.explorer import ExplorerError, explore, replay, svg, write_spec
from django_lockstep.lab.explorer.databases import is_test_database, other_sessions
from django_lockstep.lab.explorer.reports import FORMATS, RaceReport, as_text, runs_to_draw
from django_lockstep.lab.explorer.scratch import scratch_databases
from django_lockstep.lab.management.output import require_writable, write_atomically
from django_lockstep.lab.races import Race, load_race, registered_races

_DRAWN = {"svg": 1, "html": 4}
"""How many runs of a race a format shows."""
_LIMITS = ("reduction", "preemptions", "max_schedules", "timeout")


class Command(BaseCommand):
    """Explore scenarios; a thin shell over `explore` and `replay`."""

    help = (
        "Runs scenarios through every interleaving of their SQL statements, and shows the simplest one that breaks: on "
        "a scratch database, which it makes from the project's migrations and drops at the end, unless another one is "
        "named and confirmed. Exit status: 0; 1 if a race did not come out as it says (one that has to break and does "
        "not, too); 2 for wrong usage."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Say what can be asked for."""
        add = parser.add_argument
        add("scenarios", nargs="*", help="names of --list, or dotted paths of your own Scenario objects")
        add("--list", action="store_true", help="list the ready-made scenarios")
        add("--schedule", help="run this schedule only, such as AABBAB")
        add(
            "--spec",
            type=Path,
            help="also write the schedule, or the simplest wrong one, as a spec for isolationtester",
        )
        add("--actors", type=int, metavar="N", help="race so many actors, where the scenario can have more than it has")
        add("--reduction", choices=["dpor", "none"], default="dpor")
        add("--preemptions", type=int, help="interrupt an actor that could go on at most so often")
        add("--max-schedules", type=int)
        add("--timeout", type=float, help="seconds after which no further schedule is begun")
        add("--victim", choices=["last", "first"], default="last", help="who loses a deadlock")
        add("--format", choices=[*FORMATS, "svg"], default="text", help="svg draws one race, or each into a folder")
        add("--output", type=Path, help="write there instead of to the standard output; with svg also a folder")
        add("--progress", action=BooleanOptionalAction, default=True, help="say on a terminal which race is on")
        add("--database", metavar="ALIAS", help="run on this database of the project instead of a scratch database")
        add(
            "--yes-this-database-is-mine",
            action="store_true",
            help="confirm that nobody needs the rows of --database: those that others commit during the run are lost",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Explore what is named, or everything ready-made; exit 1 if something is not as expected."""
        with _wrong_usage(ImportError, TypeError, ValueError):
            if options["list"]:
                self.stdout.write("\n".join(f"{race.name:36} {race.text}" for race in registered_races().values()))
                return
            races = _races(options)
            _check(races, options)
        with _wrong_usage(ExplorerError), self._database(options) as where:
            common = {"victim": options["victim"], **where}
            reports = [
                self._report(race, options, f"{number}/{len(races)} {race.name}", **common)
                for number, race in enumerate(races, start=1)
            ]
            spec = _spec(races[0], reports[0], **common) if options["spec"] else ""
        self._show(reports, options)
        if options["spec"]:
            write_atomically(options["spec"], spec)
        surprises = [report for report in reports if not report.as_expected]
        if surprises and options["schedule"] is not None:
            raise CommandError(f"{surprises[0].name}: schedule {reports[0].runs[0].schedule} ended wrong", returncode=1)
        if surprises:
            listed = "\n".join(f"{report.name}: {_reason(report)}" for report in surprises)
            raise CommandError(f"Not as expected: {listed}", returncode=1)

    @contextmanager
    def _database(self, options: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Have a database to run on, and yield it as options of `explore`."""
        alias = options["database"] or DEFAULT_DB_ALIAS
        if options["database"] is None and not is_test_database(connections[alias]):
            with scratch_databases():
                yield {"database": alias}
            return
        if options["yes_this_database_is_mine"] and (others := other_sessions(alias)):
            self.stderr.write(
                f"Also connected to database {alias!r}: {', '.join(others)}. What they commit into tables of a race "
                "is lost."
            )
        yield {"database": alias, "database_is_mine": options["yes_this_database_is_mine"]}

    def _report(self, race: Race, options: dict[str, Any], progress: str, **common: Any) -> RaceReport:
        facts: dict[str, Any] = {"name": race.name, "text": race.text}
        if options["schedule"] is not None:
            run = replay(race.scenario, options["schedule"], **common)
            return RaceReport(**facts, runs=(run,), as_expected=run.holds or not race.holds)
        with self._progress(progress, shown=options["progress"]):
            found = explore(race.scenario, **common, **{name: options[name] for name in _LIMITS})
            runs = runs_to_draw(race.scenario, found, most=_DRAWN.get(options["format"], 0), **common)
            return RaceReport(**facts, exploration=found, runs=tuple(runs), as_expected=race.as_expected(found))

    @contextmanager
    def _progress(self, line: str, *, shown: bool) -> Iterator[None]:
        """Say on the terminal, and only there, what is on; the line goes again."""
        terminal = shown and self.stderr.isatty()
        if terminal:
            self.stderr.write(line, style_func=str, ending="\r")
        try:
            yield
        finally:
            if terminal:
                self.stderr.write(" " * len(line), style_func=str, ending="\r")

    def _show(self, reports: Sequence[RaceReport], options: dict[str, Any]) -> None:
        form, path = options["format"], options["output"]
        if form == "text" and path is None and self.stdout.isatty():
            self._write(as_text(reports, columns=shutil.get_terminal_size().columns), path)
            return
        if form != "svg":
            self._write(FORMATS[form](reports), path)
            return
        for report in reports:
            if not report.runs:
                raise CommandError(f"{report.name} has no run to draw: {_reason(report)}", returncode=1)
            inside = path / _file_of(report) if path and path.is_dir() else path
            self._write(svg(report.runs[0]), inside)

    def _write(self, text: str, path: Path | None) -> None:
        if path is None:
            self.stdout.write(text)
        else:
            write_atomically(path, text)


def _spec(race: Race, report: RaceReport, **common: Any) -> str:
    """Return the spec of the schedule asked for, or of the simplest wrong one, or of the one without preemption."""
    failure = report.exploration.failure if report.exploration else report.runs[0]
    schedule = failure.schedule if failure else ""
    return write_spec(race.scenario, schedule, **common).text


def _file_of(report: RaceReport) -> str:
    return re.sub(r"[^\w.-]+", "-", report.name) + ".svg"


@contextmanager
def _wrong_usage(*errors: type[Exception]) -> Iterator[None]:
    try:
        yield
    except errors as error:
        raise CommandError(str(error), returncode=2) from error


def _races(options: dict[str, Any]) -> list[Race]:
    races = [_race(name) for name in options["scenarios"]] or list(registered_races().values())
    return races if options["actors"] is None else [race.with_actors(options["actors"]) for race in races]


def _race(name: str) -> Race:
    """Return the ready-made race, or the user's own scenario as one that has to hold."""
    if name in (known := registered_races()):
        return known[name]
    try:
        return load_race(name)
    except ImportError as error:
        raise ValueError(f"{name!r} is no ready-made scenario (--list) and no dotted path: {error}") from error


def _check(races: Sequence[Race], options: dict[str, Any]) -> None:
    """Raise ``ValueError`` for what cannot go together, before anything is run."""
    path, database = options["output"], options["database"]
    folder = path is not None and path.is_dir() and options["format"] == "svg"
    if options["schedule"] is not None and len(races) != 1:
        raise ValueError(f"--schedule needs exactly one scenario, not {len(races)}")
    if options["spec"] is not None:
        if len(races) != 1:
            raise ValueError(f"--spec needs exactly one scenario, not {len(races)}")
        require_writable(options["spec"])
    if options["format"] == "svg" and len(races) != 1 and not folder:
        raise ValueError(
            f"--format svg draws one race, not {len(races)}: name one, or give --output a folder that is there, which "
            "gets a file for each"
        )
    if database is None and options["yes_this_database_is_mine"]:
        raise ValueError("--yes-this-database-is-mine needs --database, which says of which database that is true")
    if database is not None and database not in connections:
        raise ValueError(f"--database {database}: there is no such database; there are {', '.join(connections)}")
    if path is not None:
        require_writable(path / "race.svg" if folder else path)


def _reason(report: RaceReport) -> str:
    return report.exploration.reason if report.exploration else ""
