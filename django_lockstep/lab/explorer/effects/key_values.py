"""The keys that a statement names: by parameters, by numbers in its text, and by earlier parts of WITH."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django_lockstep.lab.explorer.effects.catalog import Catalog
from django_lockstep.lab.explorer.effects.footprints import ADVISORY, LockedKey, Mode
from django_lockstep.lab.explorer.effects.queries import Query, exp, identifier, only, parameter
from django_lockstep.lab.explorer.effects.statements import Statement

__all__ = ["HASH", "KeyValues", "hashed_text", "may_be_key"]

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


# PostgreSQL's hash of a text, by which names become keys of advisory locks. Partitions by hash are stored by it, so
# that it is the same on every version since 11.

_MASK = 0xFFFFFFFF
_MIX, _FINAL = (4, 6, 8, 16, 19, 4), (14, 11, 25, 16, 4, 14, 24)
_BLOCK = 12


def hashed_text(text: str, seed: int) -> int:
    """Return what ``hashtextextended`` does for an ASCII text: a signed number of 64 bits.

    After B. Jenkins, "lookup3", 2006, with the start and the seed of ``hash_bytes_extended`` in the server's hashfn.c.
    """
    data = text.encode("ascii")
    state = [(0x9E3779B9 + len(data) + 3923095) & _MASK] * 3
    if seed:
        _add(state, [seed >> 32, seed, 0])
        _mix(state)
    whole = len(data) - len(data) % _BLOCK
    for start in range(0, whole, _BLOCK):
        _add(state, _words(data[start : start + _BLOCK]))
        _mix(state)
    rest = data[whole:]
    # The lowest byte of the last word is left to the length.
    _add(state, _words(rest[:8].ljust(9, b"\0") + rest[8:]))
    _finish(state)
    number = state[1] << 32 | state[2]
    return number - (1 << 64) if number >> 63 else number


def _words(data: bytes) -> list[int]:
    padded = data.ljust(_BLOCK, b"\0")
    return [int.from_bytes(padded[start : start + 4], "little") for start in (0, 4, 8)]


def _add(state: list[int], words: list[int]) -> None:
    state[:] = [(one + other) & _MASK for one, other in zip(state, words, strict=True)]


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> (32 - bits)) & _MASK


def _mix(state: list[int]) -> None:
    for turn, bits in enumerate(_MIX):
        to, by, other = turn % 3, (turn + 2) % 3, (turn + 1) % 3
        state[to] = (state[to] - state[by] & _MASK) ^ _rotated(state[by], bits)
        state[by] = state[by] + state[other] & _MASK


def _finish(state: list[int]) -> None:
    for turn, bits in enumerate(_FINAL):
        to, by = (turn + 2) % 3, (turn + 1) % 3
        state[to] = (state[to] ^ state[by]) - _rotated(state[by], bits) & _MASK
