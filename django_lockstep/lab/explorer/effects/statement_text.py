"""What the text of a statement says, for people and for the finder: what it reads, writes, locks, and by which columns.

What is not understood stays empty. Which steps depend on each other is decided by `effects.sql`.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sqlglot import exp

from django_lockstep.lab.explorer.effects.queries import (
    Query,
    comparison,
    conjuncts,
    identifier,
    only,
    parameter,
    read_text,
    unwrap,
)

_QUOTED = re.compile(r'"\w+"\.(?=")|"')
_ADVISORY = re.compile(
    r"\bpg_(?:try_)?advisory_(?P<of_transaction>xact_)?(?P<verb>lock|unlock)(?:_all)?\s*\((?P<key>.*)",
    re.IGNORECASE | re.DOTALL,
)
"""Of locks that keep others out: of a shared one many sessions may have a share."""
_LOCK_TABLE = re.compile(r'\s*LOCK\s+(?:TABLE\s+)?(?:ONLY\s+)?(?:"?public"?\.)?"?([^"\s;]+)"?', re.IGNORECASE)
_SHARED_TABLE = re.compile(r"\bIN\s+((ACCESS\s+|ROW\s+)?SHARE|ROW\s+EXCLUSIVE)\s+MODE\b", re.IGNORECASE)
_MOST_REMEMBERED = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """What a column is compared with, or set to."""

    params: tuple[int, ...] = ()
    """Numbers of the parameters that it is one of; empty unless it is nothing but parameters."""
    literal: str = ""
    """A literal in the SQL: ``NULL``, ``True``, ``False``, or another one's text."""
    columns: frozenset[str] = frozenset()
    """Columns that it is computed from."""
    cases: tuple[tuple[int, int], ...] = ()
    """Where it depends on the row's key, as in ``bulk_update()``: the parameters' numbers of key and value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A column that has to be equal to a value; one of those that AND joins in WHERE."""

    table: str
    column: str
    value: Value


class StatementText:
    """One statement, or one part of WITH; ``query`` is None if it is not understood, or is about no table."""

    def __init__(self, sql: str, query: Query | None, arguments: tuple[str, ...] = ()) -> None:
        self._sql = sql
        self._query = query or Query(exp.Select())
        self._arguments = arguments
        self.is_understood = query is not None
        self.verb = (query.verb if query else "") or _QUOTED.sub("", sql).partition(" ")[0].upper()
        """SELECT, INSERT, UPDATE, DELETE; for others the first word."""

    @property
    def is_select(self) -> bool:
        """Whether it is one SELECT that is understood; a UNION is not."""
        return self.is_understood and isinstance(self._query.tree, exp.Select)

    # What it names

    @cached_property
    def table(self) -> str:
        """The table that is written, or the first one that is read."""
        if self.verb in {"INSERT", "UPDATE", "DELETE"}:
            return _name(self._query.target_name)
        return _name(next(iter(self._query.tables), ""))

    @cached_property
    def tables(self) -> frozenset[str]:
        """All tables that it names."""
        return frozenset(map(_name, self._query.aliases.values())) | self._lock_table

    @cached_property
    def equalities(self) -> tuple[Condition, ...]:
        """The conditions of WHERE that name values."""
        conditions = (self._equality(node) for node in conjuncts(self._query.where))
        return tuple(condition for condition in conditions if condition is not None)

    @cached_property
    def tested(self) -> frozenset[tuple[str, str]]:
        """All tables and columns that decide which rows it takes, in whatever way."""
        return frozenset() if self._query.where is None else frozenset(self._columns(self._query.where))

    @cached_property
    def assignments(self) -> Mapping[str, Value]:
        """What an UPDATE sets, or an INSERT puts into its first row, by column."""
        return {name: _value(node) for name, node in self._assigned}

    @cached_property
    def locked(self) -> frozenset[str]:
        """Tables whose rows a SELECT locks as only one transaction can, or that LOCK TABLE locks so."""
        tables = frozenset() if _SHARED_TABLE.search(self._sql) else self._lock_table
        for lock in self._query.tree.args.get("locks") or () if self.is_select else ():
            if not lock.args.get("update"):
                continue  # SHARE and KEY SHARE, which two transactions hold together
            # Without OF, the rows of all tables are locked.
            names = [identifier(node) for node in lock.expressions]
            tables |= {_name(self._query.aliases.get(name, name)) for name in names} or self.tables
        return tables

    @property
    def _lock_table(self) -> frozenset[str]:
        # The parser does not read LOCK TABLE.
        match = _LOCK_TABLE.match(self._sql)
        return frozenset({match[1]} if match else ())

    @property
    def advisory(self) -> re.Match[str] | None:
        """What takes or releases an advisory lock that is not shared: ``of_transaction``, ``verb`` and ``key``."""
        return _ADVISORY.search(self._sql) if self.is_select else None

    @property
    def upsert(self) -> bool:
        """Whether it is an INSERT that deals with rows that are there."""
        return self.verb == "INSERT" and bool(self._query.on_conflict)

    # What a SELECT tells

    @cached_property
    def looks(self) -> str:
        """``rows``, ``aggregate``, ``exists``, or ``first`` of an order."""
        if self._aggregates:
            return "aggregate"
        limit = self._query.tree.args.get("limit")
        if limit is None or limit.expression is None or limit.expression.name != "1":
            return "rows"
        # As exists() asks: SELECT 1 AS a ... LIMIT 1.
        if not any(node.find(exp.Column) or node.find(exp.Star) for node in self._query.tree.expressions):
            return "exists"
        return "rows" if self._query.tree.args.get("order") is None else "first"

    @cached_property
    def summed(self) -> frozenset[tuple[str, str]]:
        """Tables and columns that an aggregate or an order is over."""
        sources = {"aggregate": self._aggregates, "first": [self._query.tree.args.get("order")]}.get(self.looks, [])
        return frozenset(column for node in sources for column in self._columns(node))

    @cached_property
    def _aggregates(self) -> list[Any]:
        nodes = self._query.tree.expressions if self.is_select else ()
        return [aggregate for node in nodes for aggregate in node.find_all(exp.AggFunc)]

    # With its values, as text

    @cached_property
    def where(self) -> str:
        """Its WHERE clause; of a statement without a table all after the verb."""
        if self.is_understood:
            return self._render(self._query.where)
        numbers = itertools.count()
        rest = _QUOTED.sub("", self._sql).partition(" ")[2]
        return re.sub(
            "%s|%%", lambda match: _argument(self._arguments, next(numbers)) if match[0] == "%s" else "%", rest
        )

    @cached_property
    def keys(self) -> Mapping[str, frozenset[str]]:
        """The values that WHERE compares columns of its table with; none where the whole condition is to be shown."""
        if self._query.where is None or self._query.where.find(exp.Or, exp.Not, exp.Select, exp.Case):
            return {}
        return {
            identifier(column): frozenset(map(self._render, values))
            for column, values in self._query.comparisons
            if self._is_own(column)
            and all(isinstance(unwrap(value), exp.Placeholder | exp.Literal | exp.Neg) for value in values)
        }

    @cached_property
    def sets(self) -> Mapping[str, str]:
        """What columns are set to: a value, or an expression."""
        return {name: self._render(node, empty="") for name, node in self._assigned}

    @cached_property
    def plain(self) -> frozenset[str]:
        """Columns that are set to a parameter."""
        return frozenset(name for name, node in self._assigned if parameter(unwrap(node)) is not None)

    @cached_property
    def given(self) -> frozenset[str]:
        """Columns that are set to a value that the client has: a parameter, or NULL, which Django writes out."""
        return self.plain | {name for name, value in self.sets.items() if value == "NULL"}

    @cached_property
    def locking(self) -> str:
        """The row lock that a SELECT asks for, such as ``FOR UPDATE``."""
        return " ".join(map(self._render, self._query.tree.args.get("locks") or ()))

    def may_touch(self, other: StatementText) -> bool:
        """Whether both may be about the same row, as far as their texts tell."""
        return self.table == other.table and all(self.keys[name] & other.keys[name] for name in self._fixed(other))

    def same_row(self, other: StatementText) -> bool:
        """Whether both compare a column with the same value, and none with different values."""
        return bool(self._fixed(other)) and self.may_touch(other)

    def _fixed(self, other: StatementText) -> set[str]:
        """Return the columns that both compare and neither sets, as a write with a version guard does."""
        return (self.keys.keys() & other.keys.keys()) - self.sets.keys() - other.sets.keys()

    # Nodes

    @cached_property
    def _assigned(self) -> list[tuple[str, Any]]:
        assigned = self._query.inserted if self.verb == "INSERT" else self._query.assigned
        return [(name, node) for name, node in assigned if name]

    def _is_own(self, column: Any) -> bool:
        return self._query.table_of(column) == self._query.tables[0]

    def _columns(self, node: Any) -> Iterator[tuple[str, str]]:
        for column in node.find_all(exp.Column):
            yield _name(self._query.table_of(column)), column.name

    def _equality(self, node: Any) -> Condition | None:
        """Return the condition if it is one of a column and values."""
        if isinstance(node, exp.Not) and isinstance(node.this, exp.Column):
            column, value = node.this, Value(literal="False")
        elif isinstance(node, exp.Column):
            column, value = node, Value(literal="True")
        elif isinstance(node, exp.Is) and only(node, "this", "expression"):
            column, value = node.this, _value(node.expression)
        elif (compared := comparison(node)) is not None:
            column, value = compared[0], _one_of(list(map(_value, compared[1])))
        else:
            return None
        if not isinstance(column, exp.Column) or not (value.params or value.literal):
            return None
        return Condition(table=_name(self._query.table_of(column)), column=column.name, value=value)

    def _render(self, node: Any, empty: str = "''") -> str:
        """Return the SQL of a node with values for parameters, without the casts and parentheses around it."""

        def shorten(node: Any) -> Any:
            if (number := parameter(node)) is not None:
                return exp.Var(this=_argument(self._arguments, number, empty))
            short = isinstance(node, exp.Identifier) or (isinstance(node, exp.Column) and self._is_own(node))
            return exp.Var(this=node.name) if short else node

        if node is None:
            return ""
        if (number := parameter(unwrap(node))) is not None:
            return _argument(self._arguments, number, empty)
        return str(unwrap(node).transform(shorten).sql(dialect="postgres", normalize_functions=False)).strip()


@functools.lru_cache(maxsize=_MOST_REMEMBERED)
def read_statement(sql: str) -> StatementText:
    """Return what the statement says as a whole, whatever its values are."""
    text = read_text(sql)
    return StatementText(sql, text.whole if text else None)


@functools.lru_cache(maxsize=_MOST_REMEMBERED)
def read_parts(sql: str, arguments: tuple[str, ...]) -> tuple[StatementText, ...]:
    """Return what the statement says with these values; of a WITH statement, each part that is about a table."""
    text = read_text(sql)
    queries = (text.parts or (text.whole,)) if text else ()
    parts = [StatementText(sql, query, arguments) for query in queries if query.verb and query.tables]
    return tuple(parts) or (StatementText(sql, None, arguments),)


def columns_of(sql: str, arguments: tuple[str, ...]) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the columns that a statement compares or sets anywhere, with their values; empty texts for expressions."""
    for name, nodes in _compared_or_set(sql):
        yield name, frozenset(_parameter_or_literal(node, arguments) for node in nodes)


def _parameter_or_literal(node: Any, arguments: tuple[str, ...]) -> str:
    inner = unwrap(node)
    if (number := parameter(inner)) is not None:
        return _argument(arguments, number)
    return str(inner.name) if isinstance(inner, exp.Literal) else ""


def _argument(arguments: tuple[str, ...], number: int, empty: str = "''") -> str:
    return (arguments[number] or empty) if number < len(arguments) else "?"


@functools.lru_cache(maxsize=_MOST_REMEMBERED)
def _compared_or_set(sql: str) -> list[tuple[str, list[Any]]]:
    text = read_text(sql)
    if text is None:
        return []
    compared = [pair for node in text.whole.tree.find_all(exp.EQ, exp.In) if (pair := comparison(node)) is not None]
    columns = [(identifier(column), values) for column, values in compared]
    return columns + [(name, [value]) for query in text.parts for name, value in query.inserted]


def _name(table: str) -> str:
    return table.removeprefix("public.")


def _one_of(values: list[Value]) -> Value:
    """Return the parameters as one value; a literal among them leaves nothing certain."""
    if all(value.params for value in values):
        return Value(params=tuple(number for value in values for number in value.params))
    return values[0] if len(values) == 1 else Value()


def _value(node: Any) -> Value:
    inner = unwrap(node.this if isinstance(node, exp.Any) else node)
    number = parameter(inner)
    if number is not None:
        return Value(params=(number,))
    if isinstance(inner, exp.Null):
        return Value(literal="NULL")
    if isinstance(inner, exp.Boolean):
        return Value(literal=str(bool(inner.this)))
    if isinstance(inner, exp.Literal):
        return Value(literal=str(inner.this))
    if isinstance(inner, exp.Case) and (cases := tuple(_cases(inner))):
        return Value(cases=cases)
    return Value(columns=frozenset(column.name for column in inner.find_all(exp.Column)))


def _cases(node: Any) -> Iterator[tuple[int, int]]:
    """Yield the branches that a parameter chooses, each of which is one."""
    for branch in node.args.get("ifs") or ():
        condition, value = branch.this.unnest(), _value(branch.args.get("true"))
        key = _value(condition.expression) if isinstance(condition, exp.EQ) else Value()
        if len(key.params) == len(value.params) == 1:
            yield key.params[0], value.params[0]
