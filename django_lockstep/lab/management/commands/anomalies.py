"""``manage.py anomalies``: which isolation anomalies this server allows, by isolation level."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import product
from pathlib import Path
from typing import Any, Literal

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection
from rich.text import Text

from django_lockstep.lab.anomalies import ANOMALIES, LEVELS, POSSIBLE, RACES, REFUSALS, SOURCES, race_name
from django_lockstep.lab.explorer import Exploration, ExplorerError, explore
from django_lockstep.lab.explorer.tables.databases import is_test_database
from django_lockstep.lab.explorer.tables.scratch import scratch_databases
from django_lockstep.lab.output import require_writable, write_atomically
from django_lockstep.lab.races import Race
from django_lockstep.lab.tables import plain_table, render, width

Verdict = Literal["possible", "prevented", "incomplete"]
"""``incomplete`` if not every schedule was run, or a transaction failed for a reason of its own."""
Cells = Mapping[tuple[str, str], Exploration]
"""What exploring came to, by anomaly and level."""


class Command(BaseCommand):
    """Explores the races of `django_lockstep.lab.anomalies`, and prints them as one table."""

    help = (
        "Run each isolation anomaly through every interleaving on this PostgreSQL, at each isolation level, and "
        "compare with the published results. It runs on a scratch database. Exit status: 0; 1 if a result differs from "
        "the published one, or is incomplete; 2 for wrong usage. `explore anomaly:G2-item:repeatable-read` shows one "
        "of them step by step."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add("--anomaly", action="append", choices=list(ANOMALIES), help="(may be repeated; default: all)")
        add("--level", action="append", choices=LEVELS, help="(may be repeated; default: all)")
        add("--output", type=Path, metavar="FILE", help="write the report to this file instead of standard output")

    def handle(self, *args: Any, **options: Any) -> None:
        """Explore and report. Raises ``CommandError`` with the exit status."""
        output, levels = options["output"], options["level"] or LEVELS
        cells: dict[tuple[str, str], Exploration] = {}
        try:
            if output is not None:
                require_writable(output)
            with nullcontext() if is_test_database(connection) else scratch_databases():
                for anomaly, level in product(options["anomaly"] or ANOMALIES, levels):
                    if self.stderr.isatty():
                        self.stderr.write(f"{anomaly} at {level}".ljust(40), ending="\r")
                    cells[anomaly, level] = _explore(RACES[race_name(anomaly, level)])
        except (ExplorerError, ValueError) as error:
            raise CommandError(str(error), returncode=2) from error
        terminal = output is None and (self.stdout.isatty() or options["force_color"])
        text = render(_blocks(cells, levels), width=width(terminal=terminal), colour=terminal)
        if output is None:
            self.stdout.write(text)
        else:
            write_atomically(output, text)
        different = [
            f"{anomaly} at {level} is {_verdict(cell)}"
            for (anomaly, level), cell in cells.items()
            if _differs(anomaly, level, cell)
        ]
        if different:
            raise CommandError(f"Not as published: {', '.join(different)}", returncode=1)


def _explore(race: Race) -> Exploration:
    # The reduction assumes that no transaction sees what is not committed, which is what some anomalies are about.
    # Three transactions without it would take too long.
    return explore(race.scenario, reduction="none" if len(race.scenario.actors) == 2 else "dpor")


def _verdict(exploration: Exploration) -> Verdict:
    errors = {error for outcome in exploration.outcomes for error in outcome.errors.values()}
    # A transaction that failed for another reason than concurrency was never exposed to the anomaly.
    if errors <= REFUSALS:
        if exploration.verdict == "holds":
            return "prevented"
        if exploration.verdict == "broken":
            return "possible"
    return "incomplete"


def _differs(anomaly: str, level: str, exploration: Exploration) -> bool:
    return _verdict(exploration) != ("possible" if anomaly in POSSIBLE[level] else "prevented")


def _blocks(cells: Cells, levels: Sequence[str]) -> Iterator[Any]:
    schedules, seconds = sum(cell.schedules for cell in cells.values()), sum(cell.seconds for cell in cells.values())
    yield f"{schedules:,} schedules run in {seconds:.1f} s. Each cell says POSSIBLE, or what prevents the anomaly:"
    table = plain_table("Anomaly", *levels, "")
    for anomaly in dict.fromkeys(anomaly for anomaly, _ in cells):
        texts = (_cell_text(anomaly, level, cells[anomaly, level]) for level in levels)
        table.add_row(anomaly, *texts, ANOMALIES[anomaly].title)
    yield table
    yield ""
    agreeing = sum(not _differs(anomaly, level, cell) for (anomaly, level), cell in cells.items())
    yield f"{agreeing} of {len(cells)} as published: {'; '.join(SOURCES)}."


def _cell_text(anomaly: str, level: str, exploration: Exploration) -> Text:
    verdict, mark = _verdict(exploration), " (!)" if _differs(anomaly, level, exploration) else ""
    if verdict == "prevented":
        # By waits, by errors, or else by snapshots.
        causes = [*(["waits"] if exploration.waits else []), *exploration.errors] or ["snapshots"]
        return Text(", ".join(causes) + mark, style="green")
    return Text(verdict.upper() + mark, style="bold red" if verdict == "possible" else "yellow")
