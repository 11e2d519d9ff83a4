"""``manage.py anomalies``: which isolation anomalies this server allows, by level and by locking strategy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DEFAULT_DB_ALIAS, connections

from django_lockstep.lab.anomalies import AnomaliesError, AnomalyReport, find_anomalies, select_cases
from django_lockstep.lab.anomalies.access_patterns import LEVELS, STRATEGIES
from django_lockstep.lab.anomalies.definitions import ANOMALIES
from django_lockstep.lab.anomalies.render import as_html, as_table, as_timeline
from django_lockstep.lab.anomalies.run import AnomalyCase
from django_lockstep.lab.explorer import ExplorerError
from django_lockstep.lab.output import require_writable, write_atomically
from django_lockstep.lab.tables import width


class Command(BaseCommand):
    """Checks options, prints the report, and sets the exit status."""

    help = (
        "Run each isolation anomaly through every interleaving on the configured PostgreSQL, at each isolation level "
        "and with each locking strategy, and compare the results with published ones. It creates one table and drops "
        "it at the end. Exit status: 0; 1 if a result differs from the published one, or is incomplete; 2 for wrong "
        "usage; 130 after Ctrl-C."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add("--anomaly", action="append", metavar="NAME", help=f"one of {', '.join(ANOMALIES)} (may be repeated)")
        add("--level", action="append", metavar="NAME", help=f"one of {', '.join(LEVELS)} (may be repeated)")
        add("--strategy", action="append", metavar="NAME", help=f"one of {', '.join(STRATEGIES)} (may be repeated)")
        add("--show", metavar="ANOMALY", help="show the timeline of the simplest run; needs one --level or --strategy")
        add("--max-schedules", type=int, metavar="N", help="stop each cell after N schedules; it is then incomplete")
        add("--format", choices=["table", "json", "html"], default="table", help="default: %(default)s")
        add("--output", type=Path, metavar="FILE", help="write the report to this file instead of standard output")
        add("--database", default=DEFAULT_DB_ALIAS, metavar="ALIAS", help="default: %(default)s")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run and report. Raises ``CommandError`` with the exit status."""
        asked = _asked(options)
        try:
            report = find_anomalies(
                asked,
                using=options["database"],
                max_schedules=options["max_schedules"],
                show=bool(options["show"]),
                watch=self._progress(len(asked)),
            )
        except (AnomaliesError, ExplorerError) as error:
            raise CommandError(str(error), returncode=2) from error
        except KeyboardInterrupt as error:
            raise CommandError("Interrupted; the table was dropped", returncode=130) from error
        self._write(report, options)
        _end(report)

    def _write(self, report: AnomalyReport, options: dict[str, Any]) -> None:
        if options["output"]:
            write_atomically(options["output"], _rendered(report, options, terminal=False))
        else:
            terminal = self.stdout.isatty() or options["force_color"]
            self.stdout.write(_rendered(report, options, terminal=terminal))

    def _progress(self, total: int) -> Any:
        """Return a callback that shows on a terminal which cell runs."""
        count = iter(range(1, total + 1))

        def watch(case: AnomalyCase) -> None:
            number = next(count)
            if self.stderr.isatty():
                line = f"{number}/{total} {case.anomaly.name} {case.column}"
                self.stderr.write(f"\r{line:60}", ending="\r" if number < total else f"\r{'':60}\r")

        return watch


def _asked(options: dict[str, Any]) -> tuple[AnomalyCase, ...]:
    """Return the cases to explore. Raises ``CommandError`` for wrong options, before anything is done."""
    try:
        if options["output"]:
            require_writable(options["output"])
        _require_consistent(options)
        return select_cases(_anomalies(options), **_columns(options))
    except ValueError as error:
        raise CommandError(str(error), returncode=2) from error


def _require_consistent(options: dict[str, Any]) -> None:
    limit = options["max_schedules"]
    if limit is not None and limit < 1:
        raise ValueError(f"--max-schedules must be a positive integer, not {limit}")
    if options["database"] not in connections:
        raise ValueError(f"--database must be one of {', '.join(connections)}, not {options['database']!r}")
    if options["show"] and len([*(options["level"] or []), *(options["strategy"] or [])]) != 1:
        raise ValueError("--show needs one --level or one --strategy")
    if options["show"] and (options["anomaly"] or options["format"] == "html"):
        raise ValueError("--show names the anomaly itself, so it excludes --anomaly; its formats are table and json")


def _anomalies(options: dict[str, Any]) -> list[str]:
    return [options["show"]] if options["show"] else options["anomaly"] or []


def _columns(options: dict[str, Any]) -> dict[str, Any]:
    """Return the columns; options for one table exclude the other."""
    levels, strategies = options["level"], options["strategy"]
    if levels is None and strategies is None:
        return {}
    return {"levels": levels or (), "strategies": strategies or ()}


def _rendered(report: AnomalyReport, options: dict[str, Any], *, terminal: bool) -> str:
    if options["format"] == "json":
        return report.to_json()
    if options["format"] == "html":
        return as_html(report)
    if options["show"]:
        return as_timeline(report, report.cells[0])
    return as_table(report, width=width(terminal=terminal), colour=terminal and not options["no_color"])


def _end(report: AnomalyReport) -> None:
    """Raise ``CommandError`` where the exit status is not 0."""
    different, unknown = len(report.disagreements), len(report.incomplete)
    if different:
        raise CommandError(
            f"Results differ from published ones in {different} of {len(report.cells)} cells", returncode=1
        )
    if unknown:
        raise CommandError(f"Results are incomplete in {unknown} of {len(report.cells)} cells", returncode=1)
