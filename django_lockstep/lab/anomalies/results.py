"""What was found: plain frozen data that tables, JSON and HTML only render."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

from django_lockstep.lab.explorer import Run

__all__ = ["SCHEMA_VERSION", "AnomalyReport", "Cell", "Kind", "Named", "Verdict"]

SCHEMA_VERSION = 1
"""Of `AnomalyReport.to_json`; rises when a reader of the old form would misread the new one."""

Kind = Literal["level", "strategy"]
Verdict = Literal["possible", "prevented", "incomplete"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """An anomaly, an isolation level or a locking strategy."""

    name: str
    """What the options call it."""
    title: str = ""
    """The name in words, where the name is an abbreviation."""
    text: str
    """What it is, in a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Whether one anomaly happens at one level, or with one strategy."""

    anomaly: str
    """The anomaly's name."""
    kind: Kind
    """Which of the two tables it belongs to."""
    column: str
    """The level's or the strategy's name."""
    verdict: Verdict
    """``possible``: a schedule shows it; ``prevented``: no schedule does, and all were run; else ``incomplete``."""
    how: tuple[str, ...]
    """What kept transactions apart where it is prevented: ``waits``, an SQLSTATE, the class of another error.

    ``snapshots`` where nothing else did: every statement saw what was committed when it, or its transaction, began.
    """
    schedule: str | None
    """The simplest schedule that shows it."""
    schedules: int
    """Schedules run to their end."""
    reason: str
    """The verdict in a sentence."""
    seconds: float
    """Time taken."""
    published: Verdict | None = None
    """What the literature says of this level; None where it says nothing."""
    run: Run | None = None
    """The schedule that shows it, step by step; where it was asked for, also one that does not."""

    @property
    def agrees(self) -> bool:
        """Whether it is as published, or nothing is."""
        return self.published in (None, self.verdict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnomalyReport:
    """Both tables."""

    server: str
    """The server and its version."""
    database: str
    """Alias of the database."""
    anomalies: tuple[Named, ...]
    """The rows of the tables."""
    levels: tuple[Named, ...]
    """The columns of the first one."""
    strategies: tuple[Named, ...]
    """The columns of the second one."""
    cells: tuple[Cell, ...]
    """Every cell of both."""
    sources: tuple[str, ...]
    """Where the published results stand."""
    seconds: float
    """Time taken."""

    def cell(self, kind: Kind, anomaly: str, column: str) -> Cell:
        """Return one cell. Raises ``LookupError`` if it was not asked for."""
        for cell in self.cells:
            if (cell.kind, cell.anomaly, cell.column) == (kind, anomaly, column):
                return cell
        raise LookupError(f"{anomaly} with {kind} {column} is not in this report")

    @property
    def disagreements(self) -> tuple[Cell, ...]:
        """Cells that came out otherwise than published."""
        return tuple(cell for cell in self.cells if cell.verdict != "incomplete" and not cell.agrees)

    @property
    def incomplete(self) -> tuple[Cell, ...]:
        """Cells of which nothing is known."""
        return tuple(cell for cell in self.cells if cell.verdict == "incomplete")

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts, lists, strings and numbers."""
        return {"schema_version": SCHEMA_VERSION, **asdict(self)}

    def to_json(self) -> str:
        """Return the report as JSON with the schema's version."""
        return json.dumps(self.to_dict(), indent=2)
