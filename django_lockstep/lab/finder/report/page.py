"""The report as one HTML page that needs nothing else."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.utils.safestring import mark_safe

from django_lockstep.lab.explorer.render.reports import render_page
from django_lockstep.lab.finder.derive.candidates import Access
from django_lockstep.lab.finder.record.recording import Site
from django_lockstep.lab.finder.report.reports import STATUSES, Entry, Report

__all__ = ["as_html", "page_context"]

_AROUND = 4
"""Lines of code that are shown before and after an access."""


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    text: str
    marked: bool


def as_html(report: Report) -> str:
    """Return the page: the candidates, the worst first, with code, timelines and remedies.

    Without JavaScript all of it can be read; with it the candidates can be filtered and the tests copied.
    """
    return render_page("lockstep_lab/found_races.html", page_context(report), scripts=["found_races.js"])


def page_context(report: Report) -> dict[str, Any]:
    """Return what a page on the report shows."""
    present = {entry.status for entry in report.entries}
    return {
        "report": report,
        "counts": report.counts(),
        "statuses": [status for status in STATUSES if status in present],
        "kinds": sorted({entry.candidate.kind for entry in report.entries}),
        "races": [_shown(entry, report.root) for entry in report.entries],
    }


def _shown(entry: Entry, root: Path) -> dict[str, object]:
    accesses = {"Reads": entry.candidate.read, "Writes": entry.candidate.write}
    return {
        "entry": entry,
        "candidate": entry.candidate,
        "finding": entry.finding,
        "accesses": [_access(verb, access, root) for verb, access in accesses.items() if access is not None],
        # svg() has escaped everything that came from outside.
        "drawing": mark_safe(entry.finding.drawing),  # noqa: S308
    }


def _access(verb: str, access: Access, root: Path) -> dict[str, object]:
    lines = list(_excerpt(access.site, root)) if access.site else []
    return {"verb": verb, "access": access, "lines": lines}


def _excerpt(site: Site, root: Path) -> Iterator[_Line]:
    """Yield the lines around the site, as they are now; none where its file is not found."""
    lines = _source_lines(site, root)
    for number in range(max(1, site.line - _AROUND), min(len(lines), site.line + _AROUND) + 1):
        yield _Line(number, lines[number - 1].rstrip(), number == site.line)


def _source_lines(site: Site, root: Path) -> Sequence[str]:
    # Installed apps are named as they are imported.
    for folder in (root, *map(Path, sys.path)):
        if lines := linecache.getlines(str(folder / site.path)):
            return lines
    return []
