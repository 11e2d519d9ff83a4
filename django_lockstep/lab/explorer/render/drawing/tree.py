"""Draws the schedules of a search as a tree, a line for each run of moves without a fork.

Colour is never the only sign: each line says in words what became of it, and what was not run is dotted.
"""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree as ET

from django.utils import translation

from django_lockstep.lab.explorer.render.drawing.elements import COLUMN, MARGIN, add, start_drawing, write
from django_lockstep.lab.explorer.render.text_width import display_width
from django_lockstep.lab.explorer.render.tree_rows import TreeRow, tree_rows
from django_lockstep.lab.explorer.results import Exploration

__all__ = ["tree_svg"]

_INDENT, _LINE, _TOP = 18, 20, 56
_NARROWEST = 480


def tree_svg(found: Exploration, *, title: str) -> str:
    """Return the tree of an exploration that has kept it; ``title`` is the heading. In English, as all drawings."""
    with translation.override("en"):
        lines = [(depth, row, row.moves or "Start", row.text) for depth, row in _with_depths(found)]
    width = max([_NARROWEST, *(_middle(depth, moves) + _width(text) for depth, _, moves, text in lines)])
    described = "; ".join(f"{row.start}{moves}: {text}" for _, row, moves, text in lines)
    height = _TOP + _LINE * len(lines) + MARGIN
    root = start_drawing(width + MARGIN, height, ident="tree", title=title, description=described)
    write(root, MARGIN, 28, text=title, kind="head")
    parents: dict[int, float] = {}
    """The height of the last line at each depth."""
    for number, (depth, row, moves, text) in enumerate(lines):
        y, x = _TOP + _LINE * number, _left(depth)
        parents[depth] = y
        if depth:
            add(root, "path", class_="lane", d=f"M{x - _INDENT + 4:g},{parents[depth - 1] + 8:g} V{y:g}")
        add(root, "path", class_=f"branch {row.look}", d=f"M{x - _INDENT + 4:g},{y:g} H{x - 4:g}")
        write(root, x, y + 4, text=moves, kind="moves")
        write(root, _middle(depth, moves), y + 4, text=text, kind="faint" if row.look == "cut" else "")
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


def _middle(depth: int, moves: str) -> float:
    """Return where the words behind the moves begin."""
    return _left(depth) + _width(f"{moves}  ")


def _width(text: str) -> float:
    return display_width(text) * COLUMN
