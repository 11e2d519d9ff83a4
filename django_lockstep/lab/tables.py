"""Tables for the terminal, drawn by rich, which the lab's commands share."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterable

from rich.box import Box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

_ENDLESS = 1000
_WIDEST = 100
_PIPED = 80


def width(*, terminal: bool) -> int:
    """Return the number of columns to use: the terminal's, up to a readable maximum."""
    # In a pipe or a file always the same width, so that two outputs can be compared.
    return min(shutil.get_terminal_size((_PIPED, 24)).columns, _WIDEST) if terminal else _PIPED


def render(blocks: Iterable[RenderableType], *, width: int, colour: bool) -> str:
    """Return the blocks as text of this width; ``colour`` puts terminal codes into it."""
    text = io.StringIO()
    console = Console(file=text, width=width, force_terminal=colour, highlight=False, markup=False, emoji=False)
    for block in blocks:
        _print(console, block)
    return "\n".join(line.rstrip() for line in text.getvalue().rstrip().split("\n"))


def plain_table(*titles: str) -> Table:
    """Return a table with these headings and no rows."""
    # A line of dashes below the headings, in ASCII, which every terminal and every file can show.
    lines = Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)
    table = Table(box=lines, show_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for title in titles:
        table.add_column(title, no_wrap=True)
    return table


def _print(console: Console, block: RenderableType) -> None:
    """Print tables in full: without padding if they do not fit, and wider than the console rather than cut off."""
    if not (isinstance(block, Table) and block.show_header):
        console.print(block)
        return
    unbounded = console.options.update(max_width=_ENDLESS)
    if console.measure(block, options=unbounded).maximum > console.width:
        block.padding = 0
    width = console.width
    console.width = max(width, console.measure(block, options=unbounded).maximum)
    console.print(block)
    console.width = width


def bold(text: str) -> Text:
    return Text(text, style="bold")
