"""Draws the schedules of a search as a tree, a line for each run of moves without a fork.

Colour is never the only sign: each line says in words what became of it, and what was not run is dotted.
"""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree as ET

from django.utils import translation

from django_lockstep.lab.explorer.drawing.elements import COLUMN, MARGIN, add, start_drawing, write
from django_lockstep.lab.explorer.results import Exploration
from django_lockstep.lab.explorer.text_width import clean, display_width
from django_lockstep.lab.explorer.tree_rows import TreeRow, tree_rows

__all__ = ["tree_svg"]

_INDENT, _LINE, _TOP = 18, 20, 56
_NARROWEST = 480


def tree_svg(found: Exploration, *, title: str) -> str:
    """Return the tree of an exploration that has kept it; ``title`` is the heading. In English, as all drawings."""
    with translation.override("en"):
        lines = [(depth, row, f"{row.moves or 'Start'}  {row.text}") for depth, row in _with_depths(found)]
        width = max([_NARROWEST, *(_left(depth) + display_width(clean(text)) * COLUMN for depth, _, text in lines)])
        described = "; ".join(f"{row.schedule or 'Start'}: {row.text}" for _, row, _ in lines)
    height = _TOP + _LINE * len(lines) + MARGIN
    root = start_drawing(width + MARGIN, height, ident="tree", title=title, description=described)
    write(root, MARGIN, 28, text=title, kind="head")
    parents: dict[int, float] = {}
    """The height of the last line at each depth."""
    for number, (depth, row, text) in enumerate(lines):
        y = _TOP + _LINE * number
        parents[depth] = y
        _draw(root, row, x=_left(depth), y=y, under=parents.get(depth - 1))
        write(root, _left(depth), y + 4, text=text, kind="faint" if row.look == "cut" else "")
    return ET.tostring(root, encoding="unicode")


def _with_depths(found: Exploration) -> Iterator[tuple[int, TreeRow]]:
    depth = 0
    for row in tree_rows(found):
        if row.kind == "end":
            depth -= 1
            continue
        yield depth, row
        depth += row.kind == "fork"


def _left(depth: int) -> float:
    return MARGIN + _INDENT * (depth + 1)


def _draw(root: ET.Element, row: TreeRow, *, x: float, y: float, under: float | None) -> None:
    """Draw the branch from the line that leads to this one; none leads to the first one."""
    corner = x - _INDENT + 4
    begin = "" if under is None else f"M{corner:g},{under + 6:g} V{y:g} H{x - 4:g}"
    add(root, "path", class_=f"branch {row.look}", d=begin or f"M{corner:g},{y:g} H{x - 4:g}")
