"""Reads the clauses of one statement: tables after a comma, the rows that WHERE names, the columns that SET changes.

Each function reads a whole expression or returns that it does not understand it. Strings have been emptied before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from django_lockstep.lab.explorer.parts import closing_parenthesis

__all__ = ["conditions", "key_condition", "lists_tables", "plain_text", "set_columns"]

_LITERAL = re.compile(r"\"[^\"]*\"|'(?:[^']|'')*'")
_UNUSUAL = re.compile(r"\b[eE]'|\b[uU]&['\"]|\$\w*\$|--|/\*|%[bt]\b")
"""Strings with escapes, strings in dollars, comments, parameters of another kind."""
_MISLEADING = re.compile(
    r"['(),;%]|\b(SELECT|FROM|JOIN|INTO|UPDATE|USING|WHERE|SET|AND|OR|FOR|TABLE|DO|ON|VALUES)\b", re.IGNORECASE
)
"""Quoted names that the patterns would take for something else."""
_NOT_A_SOURCE = re.compile(r"\bIS\s+(NOT\s+)?DISTINCT\s+FROM\b", re.IGNORECASE)
_SOURCE = re.compile(r"\b(?:FROM|USING)\b", re.IGNORECASE)
_END = (
    "WHERE|GROUP|ORDER|HAVING|LIMIT|OFFSET|FETCH|FOR|RETURNING|WINDOW|UNION|EXCEPT|INTERSECT|SET|VALUES|CONFLICT|"
    "SELECT|FROM"
)
_TOKEN = re.compile(rf'"[^"]*"|[(),]|\b(?:AND|OR|{_END})\b', re.IGNORECASE)
_OPERAND = r"(?:%s|\d+)(?:::(?:int|integer|bigint|smallint|int[248]))?"


def plain_text(sql: str) -> str | None:
    """Return the statement with empty strings; None where strings, names or parameters may be misread."""
    if _UNUSUAL.search(sql):
        return None
    tokens = _LITERAL.findall(sql)
    if any(_MISLEADING.search(token[1:-1]) for token in tokens if token[0] == '"'):
        return None
    if any(re.search(r"%[sbt(]", token.replace("%%", "")) for token in tokens):
        return None  # a parameter inside of a string, which the driver counts
    text = _LITERAL.sub(lambda found: found[0] if found[0][0] == '"' else "''", sql)
    return _NOT_A_SOURCE.sub("<>", text.replace("%%", "% ")).strip().rstrip(";").rstrip()


def _top_level(text: str, start: int = 0) -> Iterator[re.Match[str]]:
    """Yield words and commas outside of parentheses, up to the end of the parenthesis that encloses the start."""
    depth = 0
    for token in _TOKEN.finditer(text, start):
        depth += {"(": 1, ")": -1}.get(token[0], 0)
        if depth < 0:
            return
        if depth == 0 and token[0][0] not in '")':
            yield token


def lists_tables(text: str) -> bool:
    """Whether a comma adds a table to a FROM or USING clause anywhere in the statement."""
    return any(_continues_with_comma(text, source.end()) for source in _SOURCE.finditer(text))


def _continues_with_comma(text: str, start: int) -> bool:
    for token in _top_level(text, start):
        if token[0] == ",":
            return True
        if token[0].upper() not in {"AND", "OR"}:
            return False
    return False


def conditions(text: str) -> Iterator[tuple[int, str]]:
    """Yield the AND-ed conditions of the WHERE clause, with their positions in the text."""
    where = next((token for token in _top_level(text) if token[0].upper() == "WHERE"), None)
    if where is not None:
        ends = (token.start() for token in _top_level(text, where.end()) if token[0].upper() in _END.split("|"))
        yield from _conjuncts(text, where.end(), next(ends, len(text)))


def _conjuncts(text: str, start: int, end: int) -> Iterator[tuple[int, str]]:
    words = [token for token in _top_level(text, start) if token.end() <= end]
    # With OR no single condition restricts the rows.
    if any(token[0].upper() == "OR" for token in words):
        return
    borders = [token for token in words if token[0].upper() == "AND"]
    starts = [start, *(token.end() for token in borders)]
    for first, last in zip(starts, [*(token.start() for token in borders), end], strict=True):
        inner = first + len(text[first:last]) - len(text[first:last].lstrip())
        if (
            text[inner : inner + 1] == "("
            and closing_parenthesis(text, inner + 1) == inner + len(text[inner:last].rstrip()) - 1
        ):
            yield from _conjuncts(text, inner + 1, closing_parenthesis(text, inner + 1))
        else:
            yield first, text[first:last]


def key_condition(condition: str, *, table: str, column: str) -> tuple[str, list[str]] | None:
    """Return the text before the first operand, and the operands, of a condition ``key = x`` or ``key IN (x, ...)``."""
    name = re.escape(column)
    qualified = rf'(?:(?:"{re.escape(table)}"|{re.escape(table)})\.)?(?:"{name}"|{name})'
    found = re.fullmatch(
        rf"(\s*{qualified}\s*(?:=|[iI][nN]\s*\())\s*({_OPERAND}(?:\s*,\s*{_OPERAND})*)\s*(\)?)\s*", condition
    )
    if found is None or (found[1].endswith("(") != bool(found[3])) or (not found[3] and "," in found[2]):
        return None
    return found[1], [operand.partition("::")[0].strip() for operand in found[2].split(",")]


_ASSIGNMENT = re.compile(r'\s*(?:"([^"]+)"|([a-z_]\w*))\s*(?:\[[^\]]*\]\s*)*=', re.IGNORECASE)


def set_columns(text: str) -> set[str] | None:
    """Return the columns that an UPDATE sets; None where that is not certain."""
    first = next((token for token in _top_level(text) if token[0].upper() == "SET"), None)
    if first is None:
        return None
    found: set[str] = set()
    start = first.end()
    for token in [*_top_level(text, first.end()), None]:
        word = token[0].upper() if token else ""
        # Inside the expression that a column is set to.
        if word in {"AND", "OR"}:
            continue
        assignment = _ASSIGNMENT.match(text, start)
        if assignment is None:
            return None
        found.add(assignment[1] or assignment[2].lower())
        if token is None or word != ",":
            break
        start = token.end()
    return found
