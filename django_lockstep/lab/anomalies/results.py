"""Results: plain frozen data, which tables, JSON and HTML only render."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

from django_lockstep.lab.explorer import Run

__all__ = ["SCHEMA_VERSION", "AnomalyCell", "AnomalyReport", "Heading", "Possibility", "TableKind"]

SCHEMA_VERSION = 2
"""Of `AnomalyReport.to_json`; incremented when a reader of the old form would misread the new one."""

TableKind = Literal["level", "strategy"]
Possibility = Literal["possible", "prevented", "incomplete"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """The heading of a row or column: an anomaly, an isolation level or a locking strategy."""

    name: str
    """Its name in the options."""
    title: str = ""
    """The name in words, where the name is an abbreviation."""
    text: str
    """A description, in a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnomalyCell:
    """Whether one anomaly is possible at one level, or with one strategy."""

    anomaly: str
    """The anomaly's name."""
    kind: TableKind
    """Which of the two tables it belongs to."""
    column: str
    """The level's or the strategy's name."""
    verdict: Possibility
    """``possible``: a schedule shows it; ``prevented``: no schedule does, and all were run; else ``incomplete``."""
    prevented_by: tuple[str, ...]
    """What prevented it: ``waits``, an SQLSTATE, the class of another error.

    ``snapshots`` if nothing else did: every statement saw what was committed when it, or its transaction, began.
    """
    schedule: str | None
    """The simplest schedule that shows it."""
    schedules: int
    """Schedules run to their end."""
    reason: str
    """The verdict in a sentence."""
    seconds: float
    """Time taken."""
    published: Possibility | None = None
    """The published result for this level; None if there is none."""
    run: Run | None = None
    """The run that shows it; with ``show`` also one that does not."""

    @property
    def agrees(self) -> bool:
        """Whether it is as published, or nothing is published."""
        return self.published in (None, self.verdict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnomalyReport:
    """The results of both tables."""

    server: str
    """The server and its version."""
    database: str
    """The database's alias."""
    anomalies: tuple[Heading, ...]
    """The rows of the tables."""
    levels: tuple[Heading, ...]
    """The columns of the first table."""
    strategies: tuple[Heading, ...]
    """The columns of the second table."""
    cells: tuple[AnomalyCell, ...]
    """The cells of both tables."""
    sources: tuple[str, ...]
    """Where the published results can be found."""
    seconds: float
    """Time taken."""

    def cell(self, kind: TableKind, anomaly: str, column: str) -> AnomalyCell:
        """Return one cell. Raises ``LookupError`` if it was not asked for."""
        for cell in self.cells:
            if (cell.kind, cell.anomaly, cell.column) == (kind, anomaly, column):
                return cell
        raise LookupError(f"{anomaly} with {kind} {column} is not in this report")

    @property
    def disagreements(self) -> tuple[AnomalyCell, ...]:
        """Cells whose results differ from the published ones."""
        return tuple(cell for cell in self.cells if cell.verdict != "incomplete" and not cell.agrees)

    @property
    def incomplete(self) -> tuple[AnomalyCell, ...]:
        """Cells without a result."""
        return tuple(cell for cell in self.cells if cell.verdict == "incomplete")

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts, lists, strings and numbers."""
        return {"schema_version": SCHEMA_VERSION, **asdict(self)}

    def to_json(self) -> str:
        """Return the report as JSON with the schema's version."""
        return json.dumps(self.to_dict(), indent=2)
