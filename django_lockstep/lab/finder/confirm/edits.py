"""Replacements in a source text, at the places that `ast` names."""

from __future__ import annotations

import ast
from collections.abc import Iterable

__all__ = ["Edit", "edited", "end_of", "is_on", "offset", "start_of"]

Edit = tuple[int, int, str]
"""Where the replaced text starts and ends, the same for an insertion, and what stands there instead."""


def offset(source: str, line: int, column: int = 0) -> int:
    """Return the place of a column, which `ast` counts in UTF-8, of a line."""
    lines = source.splitlines(keepends=True)
    return sum(map(len, lines[: line - 1])) + len(lines[line - 1].encode()[:column].decode())


def start_of(source: str, node: ast.expr | ast.stmt) -> int:
    """Return the place where a node starts."""
    return offset(source, node.lineno, node.col_offset)


def end_of(source: str, node: ast.expr | ast.stmt) -> int:
    """Return the place behind a node."""
    return offset(source, node.end_lineno or node.lineno, node.end_col_offset or 0)


def is_on(node: ast.expr | ast.stmt, line: int) -> bool:
    """Whether the line is one of the node's."""
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def edited(source: str, edits: Iterable[Edit]) -> str:
    """Return the source with the edits, which do not overlap."""
    for start, end, text in sorted(edits, reverse=True):
        source = source[:start] + text + source[end:]
    return source
