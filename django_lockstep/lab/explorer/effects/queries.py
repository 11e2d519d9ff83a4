"""What the text of a statement says, read with sqlglot, each text once: for footprints, summaries and the finder.

sqlglot accepts more than PostgreSQL, and its trees differ from version to version. So a text is read only if every
parameter of it is found in the tree, and a condition or assignment only if its node has no other parts than expected.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import SqlglotError

_POSTGRES = Postgres()
_PLACEHOLDER = re.compile(r"%(?:\(\w+\))?[sbt]|%%")
_FIRST_WORDS = frozenset({"SELECT", "INSERT", "UPDATE", "DELETE", "WITH", "VALUES", "MERGE", "("})
"""How statements about rows begin; others would only make sqlglot log that it does not know them."""
_VERBS = ((exp.Insert, "INSERT"), (exp.Update, "UPDATE"), (exp.Delete, "DELETE"), (exp.Query | exp.Values, "SELECT"))
_NOT_FOUND_BY = frozenset({"kind", "this", "expressions", "from_", "limit", "locks", "returning"})
"""Parts of a statement that do not matter to how rows are found."""
_MOST_REMEMBERED = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A statement that was read."""

    whole: Query
    parts: tuple[Query, ...]
    """The parts of WITH, and last the statement itself without them. Empty where WITH is recursive or nested: which
    table a name means depends on its place then."""
    names: frozenset[str]
    """Words that are read as neither tables nor columns. A table among them was misread."""


class Query:
    """One SELECT, INSERT, UPDATE or DELETE."""

    def __init__(self, tree: Any, *, name: str = "", earlier: frozenset[str] = frozenset()):
        self.tree = tree
        self.name = name
        """What later parts of WITH call it; empty for the statement itself."""
        self.verb = next((verb for kind, verb in _VERBS if isinstance(tree, kind)), "")
        # FOR UPDATE OF repeats the name of a table that FROM has named.
        nodes = [node for node in tree.find_all(exp.Table) if node.name and not isinstance(node.parent, exp.Lock)]
        self.aliases: Mapping[str, str] = {identifier(node.args.get("alias") or node): _table(node) for node in nodes}
        """The tables and earlier parts, by what the statement calls them."""
        self.tables = [name for name in map(_table, nodes) if name not in earlier]
        """The tables, as often as the statement names them."""

    @property
    def target(self) -> Any:
        """The table that is written, or the first one of FROM, as a node."""
        node = self.tree.args.get("from_") if self.verb == "SELECT" else self.tree
        target = getattr(node, "this", None)
        return target.this if isinstance(target, exp.Schema) else target

    @property
    def target_name(self) -> str:
        """The name of that table; empty where it is something else, such as a subquery."""
        return _table(self.target) if isinstance(self.target, exp.Table) and self.target.name else ""

    @property
    def where(self) -> Any:
        """The condition, as a node; None without one."""
        return getattr(self.tree.args.get("where"), "this", None)

    def table_of(self, column: Any) -> str:
        """Return the column's table; the first one where the column does not name it."""
        own = identifier(column.args["table"]) if column.table else ""
        return self.aliases.get(own, own) if own else next(iter(self.aliases.values()), "")

    @functools.cached_property
    def comparisons(self) -> Sequence[tuple[Any, list[Any]]]:
        """The conditions ``column = value`` and ``column IN (value, ...)`` that every row of it fulfils."""
        return [pair for pair in map(comparison, conjuncts(self.where)) if pair is not None]

    @functools.cached_property
    def locks(self) -> Sequence[Any]:
        """The locking clauses, also those of subqueries."""
        return list(self.tree.find_all(exp.Lock))

    @property
    def finds_by_one_column(self) -> bool:
        """Whether one column alone says which rows are looked at, so that no index of another one leads to them."""
        parts = {name for name, value in self.tree.args.items() if value} - _NOT_FOUND_BY
        if not parts <= {"where", "order"} or self.tree.find(exp.AggFunc):
            return False
        return len({identifier(node) for part in parts for node in self.tree.args[part].find_all(exp.Column)}) == 1

    @property
    def limit(self) -> int | None:
        """The LIMIT of its rows; None without one, 0 if it is no number."""
        clause = self.tree.args.get("limit")
        if clause is None:
            return None
        number = getattr(clause, "expression", None)
        return int(number.name) if isinstance(number, exp.Literal) and number.name.isdigit() else 0

    def shows_order(self, keys: Collection[frozenset[str]]) -> bool:
        """Whether what it returns, or locks, depends on the order in which its rows come; ``keys`` are its table's."""
        order = self.tree.args.get("order")
        ordered = {identifier(column) for column in map(_ordered_by, order.expressions)} if order is not None else set()
        # Columns that have one value in all of its rows need not be ordered by.
        fixed = {identifier(column) for column, values in self.comparisons if len(values) == 1}
        if ordered and len(self.tables) == 1 and any(key <= ordered | fixed for key in keys):
            return False
        if self.locks or self.tree.args.get("group"):
            return True
        # Of a sum too, but that has one row, of which no order is seen.
        return any(node.find(exp.Column, exp.Star) for node in self.tree.expressions)

    def locks_first(self, keys: Collection[frozenset[str]]) -> bool:
        """Whether it writes rows that a subquery has locked in key order: ``key IN (SELECT key ... FOR UPDATE)``."""
        for condition in conjuncts(self.where):
            if isinstance(condition, exp.In) and condition.args.get("query") and only(condition, "this", "query"):
                rows = Query(condition.args["query"].unnest())
                columns = [_ordered_by(node) for node in (condition.this, *rows.tree.expressions)]
                is_key = len(columns) == 2 and identifier(columns[0]) == identifier(columns[1])
                locks = rows.locks and all(lock.args.get("update") for lock in rows.locks)
                if is_key and locks and rows.target_name == self.target_name and not rows.shows_order(keys):
                    return frozenset({identifier(columns[0])}) in keys
        return False

    @functools.cached_property
    def assigned(self) -> Sequence[tuple[str, Any]]:
        """The columns that UPDATE or DO UPDATE sets, with values; an empty name where that is not certain."""
        changed = self.tree if self.verb == "UPDATE" else self.tree.args.get("conflict")
        return [(_assigned_column(node), node.expression) for node in getattr(changed, "expressions", ())]

    @property
    def on_conflict(self) -> str:
        """DO NOTHING or DO UPDATE; empty where the INSERT says nothing of rows that are there."""
        conflict = self.tree.args.get("conflict")
        return "" if conflict is None else str(conflict.args["action"].name).upper()

    @property
    def inserts_one_row(self) -> bool:
        """Whether it is an INSERT of one row that is given by values."""
        source = self.tree.expression if self.verb == "INSERT" else None
        return isinstance(source, exp.Values) and len(source.expressions) == 1

    @property
    def inserted(self) -> Sequence[tuple[str, Any]]:
        """The columns that INSERT names, with the values of the first row; arrays where it has an array each."""
        columns = self.tree.this.expressions if isinstance(self.tree.this, exp.Schema) else ()
        return list(zip(map(identifier, columns), _first_row(self.tree.expression), strict=False))

    @functools.cached_property
    def calls(self) -> Sequence[tuple[str, Sequence[Any]]]:
        """The functions that sqlglot does not know, in small letters, with their arguments."""
        return [(node.name.lower(), node.expressions) for node in self.tree.find_all(exp.Anonymous)]


@functools.lru_cache(maxsize=_MOST_REMEMBERED)
def read_text(sql: str) -> Text | None:
    """Return the statement with ``%s`` for parameters; None where it is not one about rows, or is not understood."""
    numbers = itertools.count()
    numbered = _PLACEHOLDER.sub(lambda match: "%" if match[0] == "%%" else f":p{next(numbers)}", sql)
    try:
        tokens = _POSTGRES.tokenize(numbered)
        if not tokens or tokens[0].text.upper() not in _FIRST_WORDS:
            return None
        trees = _POSTGRES.parser().parse(tokens, numbered)
    except (SqlglotError, RecursionError):
        return None
    # The driver counts parameters inside of strings, too.
    if len(trees) != 1 or trees[0] is None or len(list(trees[0].find_all(exp.Placeholder))) != next(numbers):
        return None
    whole = Query(trees[0])
    columns = itertools.chain(
        whole.tree.find_all(exp.Column), *(schema.expressions for schema in whole.tree.find_all(exp.Schema))
    )
    understood = {*whole.aliases.values(), *map(identifier, columns)}
    return Text(
        whole=whole,
        parts=tuple(_parts(whole.tree)),
        names=frozenset(map(_name, tokens)) - understood,
    )


def _name(token: Any) -> str:
    kind = token.token_type.name
    return "" if kind == "STRING" else str(token.text if kind == "IDENTIFIER" else token.text.lower())


def _parts(tree: Any) -> Iterator[Query]:
    main = tree.copy()
    clause = main.args.get("with_")
    named = clause.pop().expressions if clause is not None else []
    nested = any(query.find(exp.With) for query in [main, *(part.this for part in named)])
    if nested or (clause is not None and clause.recursive):
        return
    earlier: frozenset[str] = frozenset()
    for part in named:
        alias = part.args["alias"]
        yield Query(part.this, name=identifier(alias), earlier=earlier)
        earlier |= {identifier(alias)}
    yield Query(main, earlier=earlier)


def _first_row(source: Any) -> Sequence[Any]:
    if isinstance(source, exp.Values) and source.expressions:
        first = source.expressions[0]
        return first.expressions if isinstance(first, exp.Tuple) else [first]
    if not isinstance(source, exp.Select):
        return ()
    arrays = source.find(exp.Unnest, exp.Explode)
    return [value for value in (source if arrays is None else arrays).expressions if not isinstance(value, exp.Star)]


def conjuncts(condition: Any) -> Iterator[Any]:
    """Yield the conditions that AND joins, without parentheses; none where there is no condition."""
    inner = None if condition is None else condition.unnest()
    if isinstance(inner, exp.And):
        for part in inner.flatten():
            yield from conjuncts(part)
    elif inner is not None:
        yield inner


def comparison(condition: Any) -> tuple[Any, list[Any]] | None:
    """Return the column and the values, one of which it must have; None for any other condition."""
    if isinstance(condition, exp.EQ) and only(condition, "this", "expression"):
        column, values = condition.this, [condition.expression]
    elif isinstance(condition, exp.In) and only(condition, "this", "expressions"):
        column, values = condition.this, condition.expressions
    else:
        return None
    return (column, values) if isinstance(column, exp.Column) else None


def _ordered_by(node: Any) -> Any:
    """Return the column by which rows are ordered; an empty name for anything else."""
    column = node.this if isinstance(node, exp.Ordered) else node
    return column if isinstance(column, exp.Column) else exp.to_identifier("")


def _assigned_column(node: Any) -> str:
    column = node.this.this if isinstance(node.this, exp.Bracket) else node.this
    plain = isinstance(node, exp.EQ) and isinstance(column, exp.Column) and only(column, "this")
    return identifier(column) if plain else ""


def only(node: Any, *parts: str) -> bool:
    """Whether the node has no other parts than these: another one, such as a negation, would change its meaning."""
    return not {name for name, value in node.args.items() if value} - set(parts)


def identifier(node: Any) -> str:
    """Return the name as the server knows it: unquoted ones in small letters."""
    name = node if isinstance(node, exp.Identifier) else node.this
    return str(name.name if name.args.get("quoted") else name.name.lower())


def _table(node: Any) -> str:
    """Return the table's name, with its schema if it names one."""
    return ".".join(map(identifier, node.parts))


def unwrap(node: Any) -> Any:
    """Return the node without parentheses and casts around it."""
    while isinstance(node, exp.Cast | exp.Paren):
        node = node.this
    return node


def parameter(node: Any) -> int | None:
    """Return the number of the parameter that the node is; None if it is something else."""
    return int(node.name[1:]) if isinstance(node, exp.Placeholder) else None
