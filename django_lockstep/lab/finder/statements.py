"""Parses the SQL of recorded statements, with sqlglot: each template once."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from django_lockstep.lab.finder.errors import ParserMissing
from django_lockstep.lab.finder.recording import SENT_MAIL
from django_lockstep.lab.finder.templates import Condition, Template, Value

try:
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError
except ImportError as error:
    raise ParserMissing(
        "Candidates are found with sqlglot, which is not installed: pip install 'django-lockstep[finder]'"
    ) from error

__all__ = ["parse_template"]

_PLACEHOLDER = re.compile(r"%([%sbt])")
_ADVISORY = re.compile(r"\bpg_(?:try_)?advisory_(xact_)?lock(?:_shared)?\s*\(", re.IGNORECASE)
_LOCK_TABLE = re.compile(r'\s*LOCK\s+(?:TABLE\s+)?(?:ONLY\s+)?(?:"?public"?\.)?"?([^"\s;]+)"?', re.IGNORECASE)
_OTHER = Template(verb="OTHER")
_MOST_REMEMBERED = 8192


@functools.lru_cache(maxsize=_MOST_REMEMBERED)
def parse_template(sql: str) -> Template:
    """Return what the statement does; its verb is ``OTHER`` where that is not known."""
    if sql == SENT_MAIL:
        return Template(verb="SEND")
    if found := _LOCK_TABLE.match(sql):
        return Template(verb="LOCK", table=found[1], tables=frozenset({found[1]}), locked=frozenset({found[1]}))
    numbers = itertools.count()
    numbered = _PLACEHOLDER.sub(lambda found: "%" if found[1] == "%" else f":p{next(numbers)}", sql)
    try:
        tree = sqlglot.parse_one(numbered, read="postgres")
    except (SqlglotError, RecursionError):
        return _OTHER
    return _Parser(tree, sql).template()


class _Parser:
    """Reads one tree."""

    def __init__(self, tree: Any, sql: str) -> None:
        self._tree = tree
        self._sql = sql
        self._aliases: Mapping[str, str] = {
            table.alias_or_name: _name(table)
            for table in tree.find_all(exp.Table)
            if table.name and not isinstance(table.parent, exp.Lock)  # FOR UPDATE OF repeats an alias
        }

    def template(self) -> Template:
        """Return what the statement reads and writes; of a UNION or a MERGE only which tables it names."""
        tree = self._tree
        if isinstance(tree, exp.Select):
            return self._select()
        if isinstance(tree, exp.Insert):
            return self._insert()
        if isinstance(tree, exp.Update | exp.Delete):
            return self._change("UPDATE" if isinstance(tree, exp.Update) else "DELETE")
        return Template(verb="OTHER", tables=frozenset(self._aliases.values()))

    def _select(self) -> Template:
        tree = self._tree
        advisory = _ADVISORY.search(self._sql)
        aggregates = [found for each in tree.expressions for found in each.find_all(exp.AggFunc)]
        ordered = tree.args.get("order")
        looks = self._looks(is_aggregate=bool(aggregates), is_ordered=ordered is not None)
        sources = aggregates if looks == "aggregate" else [ordered] if looks == "first" else []
        return Template(
            verb="SELECT",
            table=next(iter(self._aliases.values()), ""),
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
        if not any(each.find(exp.Column) or each.find(exp.Star) for each in self._tree.expressions):
            return "exists"
        return "first" if is_ordered else "rows"

    def _locked(self) -> frozenset[str]:
        """Return the tables of locking clauses that keep others from changing a row."""
        found: set[str] = set()
        for lock in self._tree.args.get("locks") or ():
            if lock.args.get("key") and not lock.args.get("update"):
                continue  # KEY SHARE
            names = [each.name for each in lock.expressions]
            found |= {self._aliases.get(name, name) for name in names} or set(self._aliases.values())
        return frozenset(found)

    def _insert(self) -> Template:
        tree = self._tree
        target = tree.this
        columns = [each.name for each in target.expressions] if isinstance(target, exp.Schema) else []
        table = target.find(exp.Table)
        return Template(
            verb="INSERT",
            table=_name(table) if table else "",
            tables=frozenset(self._aliases.values()),
            assignments=dict(zip(columns, self._inserted(tree.expression), strict=False)),
            upsert=tree.args.get("conflict") is not None,
        )

    def _inserted(self, source: Any) -> Iterator[Value]:
        """Yield the values of the first row."""
        if source is None:
            return
        if isinstance(source, exp.Values) and source.expressions:
            first = source.expressions[0]
            yield from map(_value, first.expressions if isinstance(first, exp.Tuple) else [first])
            return
        # Rows from arrays, a parameter for each column.
        arrays = source.find(exp.Unnest, exp.Explode) if isinstance(source, exp.Select) else None
        if arrays is not None:
            yield from map(_value, [arrays.this, *arrays.expressions] if arrays.this else arrays.expressions)
        elif isinstance(source, exp.Select):
            yield from map(_value, source.expressions)

    def _change(self, verb: str) -> Template:
        tree = self._tree
        assigned = [each for each in tree.expressions if isinstance(each, exp.EQ)] if verb == "UPDATE" else []
        return Template(
            verb=verb,
            table=_name(tree.this) if isinstance(tree.this, exp.Table) else "",
            assignments={each.this.name: _value(each.expression) for each in assigned},
            **self._conditions(),
        )

    def _conditions(self) -> dict[str, Any]:
        where = self._tree.args.get("where")
        parts = list(_conjuncts(where.this)) if where is not None else []
        return {
            "tables": frozenset(self._aliases.values()),
            "equalities": tuple(found for part in parts if (found := self._equality(part)) is not None),
            "tested": frozenset(self._columns(where)) if where is not None else frozenset(),
        }

    def _columns(self, node: Any) -> Iterator[tuple[str, str]]:
        for column in node.find_all(exp.Column):
            yield self._table_of(column), column.name

    def _table_of(self, column: Any) -> str:
        if column.table:
            return self._aliases.get(column.table, column.table)
        return next(iter(self._aliases.values()), "")

    def _equality(self, node: Any) -> Condition | None:
        """Return the condition if it is one of a column and values."""
        if isinstance(node, exp.Not) and isinstance(node.this, exp.Column):
            column, value = node.this, Value(literal="False")
        elif isinstance(node, exp.Column):
            column, value = node, Value(literal="True")
        elif isinstance(node, exp.In) and node.expressions:
            column, value = node.this, _one_of([_value(each) for each in node.expressions])
        elif isinstance(node, exp.EQ | exp.Is):
            column, value = node.this, _value(node.expression)
        else:
            return None
        if not isinstance(column, exp.Column) or not (value.params or value.literal):
            return None
        return Condition(table=self._table_of(column), column=column.name, value=value)


def _conjuncts(node: Any) -> Iterator[Any]:
    inner = node.unnest()
    if isinstance(inner, exp.And):
        yield from _conjuncts(inner.left)
        yield from _conjuncts(inner.right)
    else:
        yield inner


def _name(table: Any) -> str:
    schema = table.db
    return f"{schema}.{table.name}" if schema and schema != "public" else str(table.name)


def _one_of(values: list[Value]) -> Value:
    """Return the parameters as one value; a literal among them leaves nothing certain."""
    if all(value.params for value in values):
        return Value(params=tuple(number for value in values for number in value.params))
    return values[0] if len(values) == 1 else Value()


def _value(node: Any) -> Value:
    while isinstance(node, exp.Cast | exp.Paren | exp.Any):
        node = node.this
    if isinstance(node, exp.Placeholder):
        return Value(params=(int(node.name[1:]),))
    if isinstance(node, exp.Null):
        return Value(literal="NULL")
    if isinstance(node, exp.Boolean):
        return Value(literal=str(bool(node.this)))
    if isinstance(node, exp.Literal):
        return Value(literal=str(node.this))
    if isinstance(node, exp.Case) and (cases := tuple(_cases(node))):
        return Value(cases=cases)
    return Value(columns=frozenset(column.name for column in node.find_all(exp.Column)))


def _cases(node: Any) -> Iterator[tuple[int, int]]:
    """Yield the branches that a parameter chooses, each of which is one."""
    for branch in node.args.get("ifs") or ():
        condition, value = branch.this.unnest(), _value(branch.args.get("true"))
        key = _value(condition.expression) if isinstance(condition, exp.EQ) else Value()
        if len(key.params) == len(value.params) == 1:
            yield key.params[0], value.params[0]
