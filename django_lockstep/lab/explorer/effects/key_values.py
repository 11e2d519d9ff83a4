"""The keys that a statement names: by parameters, by numbers in its text, and by earlier parts of WITH."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django_lockstep.lab.explorer.effects.catalog import Catalog
from django_lockstep.lab.explorer.effects.footprints import ADVISORY, LockedKey, Mode
from django_lockstep.lab.explorer.effects.hashes import hashed_text
from django_lockstep.lab.explorer.effects.queries import Query, exp, identifier, only, parameter
from django_lockstep.lab.explorer.effects.statements import Statement

__all__ = ["HASH", "KeyValues", "may_be_key"]

_ADVISORY = {
    "pg_advisory_xact_lock": Mode.UPDATE,
    "pg_advisory_xact_lock_shared": Mode.SHARE,
    "pg_try_advisory_xact_lock": Mode.UPDATE,
    "pg_try_advisory_xact_lock_shared": Mode.SHARE,
}
_INTEGERS = ("BIGINT", "INT", "SMALLINT")
HASH = "hashtextextended"
"""The function that makes keys of advisory locks from names."""


def may_be_key(value: object) -> bool:
    """Whether it is an integer: other keys may be random, and differ from run to run."""
    if isinstance(value, str):
        return value.isascii() and value.isdigit()
    return isinstance(value, int) and not isinstance(value, bool)


class KeyValues:
    """The integers that a statement's text and parameters name."""

    def __init__(self, params: Any) -> None:
        self._params: Sequence[Any] = params if isinstance(params, list | tuple) else ()
        self._known: dict[tuple[str, str], int] = {}
        """The keys that columns of earlier parts hold."""

    def note_part(self, query: Query, statement: Statement, catalog: Catalog) -> None:
        """Note the key of a part's row, if it returns just that of one row."""
        if len(statement.reads) != 1 or query.renamed:
            return
        ((name, key),) = statement.reads
        table = catalog.get(name)
        if table is not None and table.pk and key is not None and _returns(query, name, table.pk):
            self._known[query.name, table.pk] = key

    def key(self, query: Query, node: Any) -> int | None:
        """Return the key that an operand of the query stands for; None if that is not certain."""
        inner = _without_cast(node, _INTEGERS)
        if parameter(inner) is not None:
            given = self._given(inner)
            return int(given) if may_be_key(given) else None
        if isinstance(inner, exp.Literal):
            return int(inner.name) if not inner.is_string and may_be_key(inner.name) else None
        return self._of_part(query, inner)

    def _given(self, node: Any) -> Any:
        """Return the value of a parameter; None of anything else, too."""
        number = parameter(node)
        return self._params[number] if number is not None and number < len(self._params) else None

    def _of_part(self, query: Query, node: Any) -> int | None:
        """Return the key that ``part.column`` or ``(SELECT column FROM part)`` stands for."""
        if isinstance(node, exp.Select) and only(node, "expressions", "from_") and len(node.expressions) == 1:
            source, column = node.args["from_"].this, node.expressions[0]
            name = identifier(source) if only(source, "this") else ""
            # A column of another table is that of the statement around it: the subquery then has every row's own key.
            name = name if getattr(column, "table", "").lower() in ("", name) else ""
        else:
            name, column = query.table_of(node) if isinstance(node, exp.Column) and node.table else "", node
        return self._known.get((name, identifier(column))) if isinstance(column, exp.Column) else None

    def advisory_locks(self, query: Query) -> frozenset[LockedKey]:
        """Return advisory locks as row locks of one table."""
        return frozenset(
            ((ADVISORY, self._advisory_key(query, given[0]) if len(given) == 1 else None), _ADVISORY[name])
            for name, given in query.calls
            if name in _ADVISORY
        )

    def _advisory_key(self, query: Query, node: Any) -> int | None:
        inner = node.unnest()
        if not (isinstance(inner, exp.Anonymous) and inner.name.lower() == HASH and len(inner.expressions) == 2):
            return self.key(query, node)
        name, seed = self._text(inner.expressions[0]), self.key(query, inner.expressions[1])
        # The server hashes other texts in its own encoding.
        return None if name is None or seed is None or not name.isascii() else hashed_text(name, seed)

    def _text(self, node: Any) -> str | None:
        """Return the text that an operand stands for; None if that is not certain."""
        inner = _without_cast(node, ["TEXT"])  # VARCHAR may be shorter
        if isinstance(inner, exp.DPipe):
            parts = self._text(inner.this), self._text(inner.expression)
            return None if None in parts else "".join(map(str, parts))
        given = inner.name if isinstance(inner, exp.Literal) and inner.is_string else self._given(inner)
        return str(given) if isinstance(given, str) or may_be_key(given) else None


def _without_cast(node: Any, types: Sequence[str]) -> Any:
    inner = node.unnest()
    return inner.this.unnest() if isinstance(inner, exp.Cast) and inner.is_type(*types) else inner


def _returns(query: Query, table: str, column: str) -> bool:
    """Whether the query's output has the table's column, and no other one of its name."""
    own = [each for each in query.outputs if isinstance(each, exp.Column) and query.table_of(each) == table]
    named = any(isinstance(each.this, exp.Star) or identifier(each) == column for each in own)
    return (named or any(isinstance(each, exp.Star) for each in query.outputs)) and not any(
        isinstance(each, exp.Alias) and each.alias.lower() == column for each in query.outputs
    )
