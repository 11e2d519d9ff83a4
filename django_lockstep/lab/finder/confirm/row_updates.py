"""Functions that leave a row's value to the UPDATE, with ``F()`` and a condition, in place of a check and ``save()``.

Only functions of one shape: a query of the model's manager reads the row, ``if`` compares one of its fields and leaves,
the field is set, and the row is saved. Where anything else may see or set that field, there is no such change.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.apps import apps
from django.db import models
from django.db.models.signals import post_save, pre_save

Edit = tuple[int, int, str]
"""Where the replaced text starts and ends, the same for an insertion, and what stands there instead."""
# The others choose a database, a lock or columns, or are the project's own, which may have conditions.
_QUERIES = {"get", "first", "last", "earliest", "latest", "all", "filter", "exclude", "order_by", "select_related"}
_FALSE: dict[type[models.Field[Any, Any]], str] = {
    models.BooleanField: "False",
    **dict.fromkeys((models.IntegerField, models.DecimalField, models.FloatField), "0"),
    **dict.fromkeys((models.CharField, models.TextField), '""'),
    **dict.fromkeys((models.DateField, models.UUIDField, models.ForeignKey), "None"),
}
"""Fields whose values are not changed in place, and which value is false."""
_LOOKUPS = {ast.Lt: "__gte", ast.LtE: "__gt", ast.Gt: "__lte", ast.GtE: "__lt", ast.NotEq: "", ast.IsNot: ""}
"""What to look up so that the comparison is false. If it asks for equality, those rows are excluded."""
_MIRRORED = {ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE}
# Without effects, as they are evaluated earlier; and those operators that mean the same in SQL.
_PLAIN = (ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.BinOp, ast.UnaryOp, ast.expr_context)
_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.USub)
_Parents = Mapping[ast.AST, ast.AST]


@dataclass(frozen=True, slots=True)
class _Saved:
    """The statements of a function that read a row, set one attribute of it, and save it."""

    source: str
    name: str
    """Of the variable that holds it."""
    attribute: str
    manager: str
    """Of its model, as the query that reads it has it."""
    check: ast.If | None
    """What stands directly before the change, and leaves."""
    change: ast.Assign | ast.AugAssign
    save: ast.Expr
    fields: Mapping[str, models.Field[Any, Any]]
    """The model's of `_FALSE`, by their attributes."""

    @property
    def value(self) -> str:
        """What the UPDATE sets; "" if only Python can compute it."""
        value = self._expression(self.change.value)
        if isinstance(self.change, ast.Assign) or not value:
            return value
        operator = {ast.Add: "+", ast.Sub: "-"}.get(type(self.change.op))
        operand = f"({value})" if isinstance(self.change.value, ast.BinOp | ast.UnaryOp) else value
        return f'F("{self.attribute}") {operator} {operand}' if operator else ""

    @property
    def condition(self) -> str:
        """The query of the row if the check lets it pass; "" if it is about something else."""
        own, column = f"{self.name}.{self.attribute}", self.fields[self.attribute]
        false = next(value for kind, value in _FALSE.items() if isinstance(column, kind))
        # If null is false, too, this value is not all.
        false = false if column.null == (false == "None") else ""
        operator: type[ast.AST] = ast.NotEq
        match self.check and self.check.test:
            case ast.UnaryOp(ast.Not(), operand) if ast.unparse(operand) == own:
                operator, value = ast.Eq, false
            case ast.Compare(left, [comparison], [right]) if ast.unparse(left) == own:
                operator, value = type(comparison), self._expression(right)
            case ast.Compare(left, [comparison], [right]) if ast.unparse(right) == own:
                operator, value = _MIRRORED.get(type(comparison), type(comparison)), self._expression(left)
            case test:
                value = false if test and ast.unparse(test) == own else ""
        # SQL orders strings by a collation.
        if not value or (operator in _MIRRORED and isinstance(column, models.CharField | models.TextField)):
            return ""
        row = f"filter(pk={self.name}.pk"
        if operator in _LOOKUPS:
            return f"{row}, {self.attribute}{_LOOKUPS[operator]}={value})"
        if value in {"False", "True"} and not column.null:
            return f"{row}, {self.attribute}={value == 'False'})"
        return f"{row}).exclude({self.attribute}={value})" if operator in {ast.Eq, ast.Is} else ""

    def is_exposed(self, node: ast.Name, parent: ast.AST) -> bool:
        """Whether the node reads the variable, and more of it than another field."""
        if node.id != self.name or not isinstance(node.ctx, ast.Load):
            return False
        match parent:
            case ast.Attribute(_, name):
                return name != "pk" and self.fields.get(name) in {None, self.fields[self.attribute]}
            case ast.Compare(_, [ast.Is() | ast.IsNot()], [ast.Constant(None)]):
                return False
        return True

    def edits(self, update: str, rest: list[str]) -> tuple[Edit, ...]:
        """Return the edits that leave the update as the check, if there is one, and these lines in place of the others.

        Nothing if other statements share the lines.
        """
        start, end = offset(self.source, self.change.lineno), end_of(self.source, self.save)
        indent = self.source[start : start_of(self.source, self.change)]
        comment = re.match(r"[ \t]*(#.*)?\n", self.source[end:])
        if indent.strip() or not comment:
            return ()
        lines = (start, end + comment.end(), "".join(f"{indent}{line}\n" for line in rest))
        test = self.check.test if self.check and update else None
        return (*([(start_of(self.source, test), end_of(self.source, test), update)] if test else []), lines)

    def _expression(self, node: ast.expr) -> str:
        """Return an expression for the UPDATE, where the row's columns are what they are then; "" for others."""
        text = ast.get_source_segment(self.source, node) or ""
        is_plain = all(isinstance(part, _PLAIN + _OPERATORS) for part in ast.walk(node))
        return re.sub(rf"\b{self.name}\.(\w+)", r'F("\1")', text) if is_plain else ""


def row_update(
    source: str, function: ast.FunctionDef, *, lines: tuple[int, int], table: str
) -> tuple[tuple[Edit, ...], bool]:
    """Return the edits of a function that reads and saves a row of the table on these lines; none for other shapes.

    And whether it then goes on with the new value, which only a transaction keeps as it was written.
    """
    parents = {child: node for node in ast.walk(function) for child in ast.iter_child_nodes(node)}
    row = _saved_row(source, parents, lines, table=table)
    if row is None or not (value := row.value):
        return (), False
    condition = row.condition
    test = [row.check.test] if row.check and condition else []
    own = {node for part in (row.change, row.save, *test) for node in ast.walk(part)}
    names = [node for node in parents if isinstance(node, ast.Name) and node not in own]
    uses = [node.lineno for node in names if row.is_exposed(node, parents[node])]
    # What is not computed from the row is as wrong in an UPDATE, but for the condition.
    if not (condition or 'F("' in value) or any(line <= row.save.lineno for line in uses):
        return (), False
    again = [f'{row.name}.refresh_from_db(fields=["{row.attribute}"])'] if uses else []
    if condition:
        update = f"not {row.manager}.{condition}.update({row.attribute}={value})"
        return row.edits(update, again), bool(uses)
    in_place = [f"{row.name}.{row.attribute} = {value}", f'{row.name}.save(update_fields=["{row.attribute}"])']
    return row.edits("", [*in_place, *again]), bool(uses)


def _saved_row(source: str, parents: _Parents, lines: tuple[int, int], *, table: str) -> _Saved | None:
    """Return the row if one plain query reads it, and one attribute is set, once, directly before it is saved."""
    save = next((node for node in parents if isinstance(node, ast.Expr) and is_on(node, lines[1])), None)
    lists = [part for _, part in ast.iter_fields(parents[save]) if isinstance(part, list)] if save else []
    block = next((block[: block.index(save)] for block in lists if save in block), [])
    match save, block:
        case (
            ast.Expr(ast.Call(ast.Attribute(ast.Name(name), "save"), [], options)),
            [
                *before,
                ast.Assign([ast.Attribute(ast.Name(owner), attribute)])
                | ast.AugAssign(ast.Attribute(ast.Name(owner), attribute)) as change,
            ],
        ) if owner == name and (query := _query(parents, name, save, line=lines[0])):
            fields = _fields(manager := _manager(query), table)
        case _:
            return None
    is_written = all(
        option.arg == "update_fields" and f"'{attribute}'" in ast.unparse(option.value) for option in options
    )
    # What the query asks of the column is a check that it makes.
    if attribute not in fields or not is_written or re.search(rf"\b{fields[attribute].name}|\*\*", ast.unparse(query)):
        return None
    match before:
        case [*_, ast.If(_, [*_, ast.Return() | ast.Raise() | ast.Continue()], []) as check]:
            return _Saved(source, name, attribute, manager, check, change, save, fields)
    return _Saved(source, name, attribute, manager, None, change, save, fields)


def _query(parents: _Parents, name: str, save: ast.Expr, *, line: int) -> ast.expr | None:
    """Return what the variable is set to on the line; None if it or an attribute of it is set elsewhere, too."""
    stores = [node for node in parents if isinstance(getattr(node, "ctx", None), ast.Store | ast.Del)]
    sets = [node for node in stores if isinstance(node, ast.Attribute) and ast.unparse(node.value) == name]
    match [parents[node] for node in stores if isinstance(node, ast.Name) and node.id == name]:
        case [ast.Assign([ast.Name()], query) as read] if is_on(read, line) and len(sets) == 1:
            # A loop would save the row again, a handler would see it with or without the change.
            scopes = (node for node in parents if isinstance(node, ast.For | ast.While | ast.Try | ast.TryStar))
            return query if all(is_on(scope, line) for scope in scopes if is_on(scope, save.lineno)) else None
    return None


def _manager(query: ast.expr) -> str:
    """Return the manager of a query of one row, such as ``Seat.objects``; "" if it is not certain what that adds."""
    match query:
        case ast.Call(ast.Name("get_object_or_404"), [ast.Name() | ast.Attribute() as rows, *_]):
            return f"{ast.unparse(rows).removesuffix('.objects')}.objects"
        case ast.Call(ast.Name("get_object_or_404"), [rows, *_]):
            return _manager(rows)
        case ast.Call(ast.Attribute(rows, method)) if method in _QUERIES:
            return _manager(rows)
        case ast.Attribute(ast.Name() | ast.Attribute(), "objects"):
            return ast.unparse(query)
    return ""


def _fields(manager: str, table: str) -> dict[str, models.Field[Any, Any]]:
    """Return the fields of the table's model that Python and SQL treat alike; none if its ``save()`` does more."""
    names = {model: f".{model.__name__}.objects" for model in apps.get_models() if model._meta.db_table == table}
    model = next((model for model, name in names.items() if f".{manager}".endswith(name)), None)
    methods = ("save", "save_base", "_save_table", "_do_update")
    if model is None or any(getattr(model, method) is not getattr(models.Model, method) for method in methods):
        return {}
    fields = model._meta.concrete_fields
    sets_time = any(getattr(field, "auto_now", False) for field in fields)
    computes = any(not type(field).pre_save.__module__.startswith("django.db.") for field in fields)
    if sets_time or computes or pre_save.has_listeners(model) or post_save.has_listeners(model):
        return {}
    plain = [f for f in fields if isinstance(f, tuple(_FALSE)) and type(f).__module__.startswith("django.db.")]
    return {name: field for field in plain for name in (field.name, field.attname)}


# Replacements in a source text, at the places that `ast` names.


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
