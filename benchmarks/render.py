"""Sections as tables, JSON or Markdown."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tabulate import tabulate

from benchmarks.suite import FigureTable, Section, Value

SCHEMA_VERSION = 1
"""Version of the JSON; increased when a reader of the old schema would misread the new one."""

_TITLE = """# Results

The last run of every suite, on a shared machine: compare ratios, not absolute figures, and only where `lowest` and \
`highest` are close; a load before the run above the number of processors means that other programs were running. Each \
part has the command that repeats it. To run all of them and replace the parts of this file:

```sh
python -m benchmarks {suites} --rows 1,10000 --workers 8 --format markdown --output benchmarks/RESULTS.md
```
"""


def as_json(sections: Sequence[Section], *, machine: Mapping[str, Any], command: str) -> str:
    """Return all figures with a schema version."""
    suites = {section.suite: {"sound": section.sound, "data": section.data} for section in sections}
    return json.dumps(
        {"schema_version": SCHEMA_VERSION, "command": command, "machine": dict(machine), "suites": suites}, indent=2
    )


def as_text(sections: Sequence[Section], *, machine: Mapping[str, Any], command: str) -> str:
    """Return the parts of the document alone."""
    return "\n\n".join(_text(section, machine=machine, command=command) for section in sections)


def as_markdown(sections: Sequence[Section], *, machine: Mapping[str, Any], command: str) -> str:
    """Return a document with one part for each section; `merged` puts it into another one."""
    parts = [_part(section, machine=machine, command=command) for section in sections]
    return "\n".join([_TITLE.format(suites=" ".join(section.suite for section in sections)), *parts])


def merge_parts(document: str, path: Path) -> str:
    """Return the document at the path, with the parts of the same suites replaced by those of this document."""
    if not path.exists():
        return document
    # Only what was measured anew is replaced: to run everything takes long.
    parts = {**_parts(path.read_text()), **_parts(document)}
    return "\n".join([_TITLE.format(suites=" ".join(sorted(parts))), *(parts[suite] for suite in sorted(parts))])


_PART = re.compile(r"<!-- suite: (\w+) -->\n.*?<!-- end of \1 -->\n", re.DOTALL)


def _parts(document: str) -> dict[str, str]:
    return {match[1]: match[0] for match in _PART.finditer(document)}


def _part(section: Section, *, machine: Mapping[str, Any], command: str) -> str:
    text = _text(section, machine=machine, command=command)
    return f"<!-- suite: {section.suite} -->\n{text}\n<!-- end of {section.suite} -->\n"


def _text(section: Section, *, machine: Mapping[str, Any], command: str) -> str:
    description = ", ".join(f"{name} {value}" for name, value in machine.items()) + "."
    blocks = [f"## {section.suite}", section.summary, description, f"```sh\n{command}\n```"]
    for table in section.tables:
        blocks += [f"### {table.title}", _table(table), *table.notes]
    return "\n\n".join(blocks)


def _table(table: FigureTable) -> str:
    rows = [[_shown(value).replace("|", "\\|") for value in row] for row in table.rows]
    alignment = ("left", *["right"] * (len(table.columns) - 1))
    # Figures are formatted already: a column of them is text.
    return str(tabulate(rows, table.columns, tablefmt="github", colalign=alignment, disable_numparse=True))


def _shown(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        # About three digits: the others differ from run to run.
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
    return f"{value:,}" if isinstance(value, int) else value
