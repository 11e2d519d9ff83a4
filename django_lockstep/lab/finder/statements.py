"""Templates of recorded statements: what each reads, writes and locks; each text is parsed once."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator
from typing import Any

from django_lockstep.lab.explorer.queries import (
    Query,
    comparison,
    conjuncts,
    exp,
    identifier,
    only,
    parameter,
    read_text,
    unwrap,
)
from django_lockstep.lab.finder.recording import SENT_MAIL
from django_lockstep.lab.finder.templates import Condition, Template, Value

__all__ = ["parse_template"]

_ADVISORY = re.compile(r"\bpg_(?:try_)?advisory_(xact_)?lock(?:_shared)?\s*\(", re.IGNORECASE)
_LOCK_TABLE = re.compile(r'\s*LOCK\s+(?:TABLE\s+)?(?:ONLY\s+)?(?:"?public"?\.)?"?([^"\s;]+)"?', re.IGNORECASE)
_MOST_REMEMBERED = 8192


@functools.lru_cache(maxsize=_MOST_REMEMBERED)
def parse_template(sql: str) -> Template:
    """Return what the statement does; its verb is ``OTHER`` where that is not known."""
    if sql == SENT_MAIL:
        return Template(verb="SEND")
    # The parser reads no LOCK TABLE.
    if found := _LOCK_TABLE.match(sql):
        return Template(verb="LOCK", table=found[1], tables=frozenset({found[1]}), locked=frozenset({found[1]}))
    read = read_text(sql)
    return Template(verb="OTHER") if read is None else _Parser(read.whole, sql).template()


class _Parser:
    """Reads one statement."""

    def __init__(self, query: Query, sql: str) -> None:
        self._query = query
        self._tree = query.tree
        self._sql = sql

    def template(self) -> Template:
        """Return what the statement reads and writes; of a UNION or a MERGE only which tables it names."""
        if isinstance(self._tree, exp.Select):
            return self._select()
        if self._query.verb == "INSERT":
            return self._insert()
        if self._query.verb in {"UPDATE", "DELETE"}:
            return self._change()
        return Template(verb="OTHER", tables=self._tables)

    @property
    def _tables(self) -> frozenset[str]:
        return frozenset(map(_name, self._query.aliases.values()))

    def _select(self) -> Template:
        tree = self._tree
        advisory = _ADVISORY.search(self._sql)
        aggregates = [found for each in tree.expressions for found in each.find_all(exp.AggFunc)]
        ordered = tree.args.get("order")
        looks = self._looks(is_aggregate=bool(aggregates), is_ordered=ordered is not None)
        sources = aggregates if looks == "aggregate" else [ordered] if looks == "first" else []
        return Template(
            verb="SELECT",
            table=_name(next(iter(self._query.aliases.values()), "")),
            looks=looks,
            summed=frozenset(itertools.chain.from_iterable(map(self._columns, sources))),
            locked=self._locked(),
            advisory=advisory is not None,
            of_session=advisory is not None and not advisory[1],
            **self._conditions(),
        )

    def _looks(self, *, is_aggregate: bool, is_ordered: bool) -> str:
        if is_aggregate:
            return "aggregate"
        limit = self._tree.args.get("limit")
        if limit is None or limit.expression is None or limit.expression.name != "1":
            return "rows"
        # As exists() asks: SELECT 1 AS a ... LIMIT 1.
        if not any(each.find(exp.Column) or each.find(exp.Star) for each in self._tree.expressions):
            return "exists"
        return "first" if is_ordered else "rows"

    def _locked(self) -> frozenset[str]:
        """Return the tables of locking clauses that keep others from changing a row."""
        found: set[str] = set()
        for lock in self._tree.args.get("locks") or ():
            if lock.args.get("key") and not lock.args.get("update"):
                continue  # KEY SHARE
            # Without OF, the rows of all tables are locked.
            names = [identifier(each) for each in lock.expressions]
            found |= {_name(self._query.aliases.get(name, name)) for name in names} or self._tables
        return frozenset(found)

    def _insert(self) -> Template:
        return Template(
            verb="INSERT",
            table=_name(self._query.target_name),
            tables=self._tables,
            assignments={name: _value(node) for name, node in self._query.inserted},
            upsert=bool(self._query.on_conflict),
        )

    def _change(self) -> Template:
        return Template(
            verb=self._query.verb,
            table=_name(self._query.target_name),
            assignments={name: _value(node) for name, node in self._query.assigned if name},
            **self._conditions(),
        )

    def _conditions(self) -> dict[str, Any]:
        where = self._query.where
        found = map(self._equality, conjuncts(where))
        return {
            "tables": self._tables,
            "equalities": tuple(each for each in found if each is not None),
            "tested": frozenset(self._columns(where)) if where is not None else frozenset(),
        }

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
        elif (found := comparison(node)) is not None:
            column, value = found[0], _one_of(list(map(_value, found[1])))
        else:
            return None
        if not isinstance(column, exp.Column) or not (value.params or value.literal):
            return None
        return Condition(table=_name(self._query.table_of(column)), column=column.name, value=value)


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
