"""``manage.py anomalies``: which isolation anomalies this server allows, by isolation level."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
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
from django_lockstep.lab.tables import plain_table, render, width

SCHEMA_VERSION = 1
"""Of the JSON; increased when a reader of the old form would misread the new one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What exploring one anomaly at one level came to."""

    anomaly: str
    level: str
    verdict: Literal["possible", "prevented", "incomplete"]
    """``incomplete`` if not every schedule was run, or a transaction failed for a reason of its own."""
    published: Literal["possible", "prevented"]
    prevented_by: tuple[str, ...]
    """``waits``, SQLSTATEs; ``snapshots`` if no transaction waited or failed."""
    schedule: str | None
    """The simplest schedule that shows the anomaly."""
    schedules: int
    """How many were run."""
    seconds: float


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
        add("--format", choices=["table", "json"], default="table", help="default: %(default)s")
        add("--output", type=Path, metavar="FILE", help="write the report to this file instead of standard output")

    def handle(self, *args: Any, **options: Any) -> None:
        """Explore and report. Raises ``CommandError`` with the exit status."""
        output, levels, cells = options["output"], options["level"] or LEVELS, list[Cell]()
        try:
            if output is not None:
                require_writable(output)
            with nullcontext() if is_test_database(connection) else scratch_databases():
                for anomaly, level in product(options["anomaly"] or ANOMALIES, levels):
                    if self.stderr.isatty():
                        self.stderr.write(f"{anomaly} at {level}".ljust(40), ending="\r")
                    cells.append(_explore(anomaly, level))
        except (ExplorerError, ValueError) as error:
            raise CommandError(str(error), returncode=2) from error
        if options["format"] == "json":
            text = json.dumps({"schema_version": SCHEMA_VERSION, "cells": [asdict(cell) for cell in cells]}, indent=2)
        else:
            terminal = output is None and (self.stdout.isatty() or options["force_color"])
            text = render(_blocks(cells, levels), width=width(terminal=terminal), colour=terminal)
        if output is None:
            self.stdout.write(text)
        else:
            write_atomically(output, text)
        different = [f"{cell.anomaly} at {cell.level} is {cell.verdict}" for cell in cells if _differs(cell)]
        if different:
            raise CommandError(f"Not as published: {', '.join(different)}", returncode=1)


def _explore(anomaly: str, level: str) -> Cell:
    race = RACES[race_name(anomaly, level)]
    # The reduction assumes that no transaction sees what is not committed, which is what some anomalies are about.
    # Three transactions without it would take too long.
    exploration = explore(race.scenario, reduction="none" if len(race.scenario.actors) == 2 else "dpor")
    verdict = _verdict(exploration)
    waits = ("waits",) if exploration.waits else ()
    return Cell(
        anomaly=anomaly,
        level=level,
        verdict=verdict,
        published="possible" if anomaly in POSSIBLE[level] else "prevented",
        prevented_by=((*waits, *exploration.errors) or ("snapshots",)) if verdict == "prevented" else (),
        schedule=exploration.failure.schedule if exploration.failure else None,
        schedules=exploration.schedules,
        seconds=exploration.seconds,
    )


def _verdict(exploration: Exploration) -> Literal["possible", "prevented", "incomplete"]:
    errors = {error for outcome in exploration.outcomes for error in outcome.errors.values()}
    # A transaction that failed for another reason than concurrency was never exposed to the anomaly.
    if errors <= REFUSALS:
        if exploration.verdict == "holds":
            return "prevented"
        if exploration.verdict == "broken":
            return "possible"
    return "incomplete"


def _differs(cell: Cell) -> bool:
    return cell.verdict != cell.published


def _blocks(cells: Sequence[Cell], levels: Sequence[str]) -> Iterator[Any]:
    schedules, seconds = sum(cell.schedules for cell in cells), sum(cell.seconds for cell in cells)
    yield f"{schedules:,} schedules run in {seconds:.1f} s. Each cell says POSSIBLE, or what prevents the anomaly:"
    table = plain_table("Anomaly", *levels, "")
    rows: dict[str, list[Text]] = {}
    for cell in cells:
        rows.setdefault(cell.anomaly, []).append(_cell_text(cell))
    for anomaly, texts in rows.items():
        table.add_row(anomaly, *texts, ANOMALIES[anomaly].title)
    yield table
    yield ""
    agreeing = sum(not _differs(cell) for cell in cells)
    yield f"{agreeing} of {len(cells)} as published: {'; '.join(SOURCES)}."


def _cell_text(cell: Cell) -> Text:
    mark = " (!)" if _differs(cell) else ""
    if cell.verdict == "prevented":
        return Text(", ".join(cell.prevented_by) + mark, style="green")
    return Text(cell.verdict.upper() + mark, style="bold red" if cell.verdict == "possible" else "yellow")
