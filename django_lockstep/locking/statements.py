"""The statements of a model's table, compiled by Django once and sent with other parameters from then on.

`Table` decides what it takes: columns of one table, compared with or set to plain values, on PostgreSQL. It returns a
statement to send, or None for what is for Django to do, errors included. Used by `django_lockstep.locking.shapes`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, NamedTuple
from uuid import UUID

from django.conf import settings
from django.core.signals import setting_changed
from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import lookups, sql
from django.db.models.expressions import DatabaseDefault
from django.db.models.fields import related_lookups
from django.db.models.query import MAX_GET_RESULTS, QuerySet
from django.db.models.sql import compiler as compilers
from django.dispatch import receiver

_TYPES: dict[type, Any] = {
    **dict.fromkeys([models.AutoField, models.BigAutoField, models.SmallAutoField], int),
    **dict.fromkeys([models.IntegerField, models.BigIntegerField, models.SmallIntegerField], int),
    **dict.fromkeys([models.CharField, models.TextField], str),
    models.BooleanField: bool,
    models.DateField: date,
    models.DateTimeField: datetime,
    models.DecimalField: Decimal,
    models.FloatField: float,
    models.UUIDField: UUID,
}
"""The type of value that a field of Django's leaves unchanged, or only labels, for psycopg."""
_PREPARING = ("get_db_prep_save", "get_db_prep_value", "get_prep_value", "to_python", "get_lookup")
_EXACT = (lookups.Exact, lookups.IntegerFieldExact, related_lookups.RelatedExact)


class Column:
    """A column that a statement may compare or write."""

    def __init__(self, field: Any) -> None:
        self.field = field
        self.name: str = getattr(field, "attname", "")  # the output field of an expression has none
        while isinstance(field, models.ForeignKey):
            field = field.target_field
        self.target = field
        kind = type(field)
        base = next((base for base in kind.__mro__ if base in _TYPES), kind)
        # A field that prepares its values in another way than Django's is asked for every value.
        is_djangos = all(getattr(kind, name) is getattr(base, name) for name in _PREPARING)
        self.type = _TYPES.get(base) if is_djangos else None
        # A field with a placeholder of its own, or that saves in a way of its own, may not understand a `Parameter`.
        own = hasattr(self.field, "get_placeholder") or hasattr(self.field, "get_placeholder_sql")
        self.takes_parameters = not own and kind.get_db_prep_save.__module__.startswith("django.")
        self._is_always_plain = self.type not in {Decimal, datetime}
        self._integer: tuple[int, int, Callable[[int], Any]] | None = None
        """Of a column of integers: the least and the greatest one, and how the driver wants them."""

    def compares(self, value: object) -> bool:
        """Whether ``filter()`` of this value is a plain comparison for equality."""
        # Not of a truth value: "WHERE is_open" has none.
        if type(value) is not self.type or self.type is bool:
            return False
        # The lookup as get_lookup() finds it, which a field that overrides it would be asked for.
        exact = type(self.field).get_class_lookups().get("exact")
        is_djangos = exact in _EXACT and not getattr(self.field, "instance_lookups", None)
        return is_djangos and (self._is_always_plain or _is_plain(value))

    def to_compare(self, value: Any, connection: BaseDatabaseWrapper) -> Any:
        """Return the value for the driver. Raises `ForDjango` for one that no row can have: no statement is sent."""
        if self.type is not int:
            return value
        low, high, adapt = self._integer or self._integers(connection)
        if not low <= value <= high:
            raise ForDjango
        return adapt(value)

    def _integers(self, connection: BaseDatabaseWrapper) -> tuple[int, int, Callable[[int], Any]]:
        low, high = connection.ops.integer_field_range(self.target.get_internal_type())
        self._integer = low, high, type(self.target.get_db_prep_value(1, connection, prepared=True))
        return self._integer

    def to_write(self, value: Any, connection: BaseDatabaseWrapper) -> Any:
        """Return the value for the driver, as Django's compilers ask the field for it.

        Raises `ForDjango` for an expression, and for an instance.
        """
        if type(value) is self.type and (self._is_always_plain or _is_plain(value)):
            return (self._integer or self._integers(connection))[2](value) if self.type is int else value
        if hasattr(value, "resolve_expression") or hasattr(value, "prepare_database_save"):
            raise ForDjango
        return self.field.get_db_prep_save(value, connection)


class ForDjango(Exception):
    """A value is one for which only Django can make a statement."""


def _is_plain(value: Any) -> bool:
    """Whether a field would neither refuse this value nor warn of it."""
    if type(value) is Decimal:
        return value.is_finite()
    return type(value) is not datetime or value.tzinfo is not None


class Shape(NamedTuple):
    """What was asked of a query set, the values apart."""

    lock: tuple[Any, ...] | None = None
    """The arguments of ``select_for_update()``: nowait, skip_locked, of, no_key."""
    names: tuple[str, ...] = ()
    """What is compared, by the names that ``filter()`` was given."""

    def query(self, model: type[models.Model], values: Iterable[Any]) -> QuerySet[Any]:
        """Return the query set that Django would have made."""
        rows: QuerySet[Any] = QuerySet(model)
        if self.lock is not None:
            nowait, skip_locked, of, no_key = self.lock
            rows = rows.select_for_update(nowait, skip_locked, of, no_key)
        for condition in zip(self.names, values, strict=True):
            rows = rows.filter(condition)
        return rows


class Parameter(models.Value):
    """A placeholder in a query for a value that each call gives: the one at position ``value``."""

    def as_sql(self, compiler: object, connection: BaseDatabaseWrapper) -> tuple[str, Any]:
        # Django puts an expression that is compared into brackets, unless it has some; these are taken out again.
        return _MARK, [self]


_MARK = "(%s )"


class Statement:
    """A statement as Django's compiler has made it, and what that does with the values of its rows."""

    def __init__(self, compiler: Any) -> None:
        built = compiler.as_sql()
        text, places = built[0] if isinstance(compiler, compilers.SQLInsertCompiler) else built
        self.text = text.replace(_MARK, "%s")
        self._places = [(place.value, None) if isinstance(place, Parameter) else (None, place) for place in places]
        # Not the compiler, which has the connection of the thread that compiled: it must not outlive the thread.
        self.select, self.klass_info = compiler.select, compiler.klass_info
        table, returned = compiler.query.model._meta.db_table, getattr(compiler, "returning_fields", None)
        columns = [field.get_col(table) for field in returned or ()] or [selected[0] for selected in self.select or ()]
        self.converters = compiler.get_converters(columns)

    def with_values(self, connection: Any, params: Sequence[Any]) -> BoundStatement:
        """Return it with these values in place of its parameters."""
        return BoundStatement(self, connection, tuple([c if at is None else params[at] for at, c in self._places]))


class BoundStatement:
    """A statement to send; `ModelIterable` takes it for the compiler."""

    __slots__ = ("_params", "_statement", "connection", "klass_info", "select")

    annotation_col_map = None

    def __init__(self, statement: Statement, connection: Any, params: tuple[Any, ...]) -> None:
        self._statement, self.connection, self._params = statement, connection, params
        self.select, self.klass_info = statement.select, statement.klass_info

    def count(self) -> int:
        """Send it; return how many rows it has written."""
        with self.connection.cursor() as cursor:
            cursor.execute(self._statement.text, self._params)
            count: int = cursor.rowcount
            return count

    def rows(self, **options: object) -> Sequence[Sequence[Any]]:
        """Send it; return its rows."""
        with self.connection.cursor() as cursor:
            cursor.execute(self._statement.text, self._params)
            rows: list[Any] = cursor.fetchall()
        converters: Any = self._statement.converters
        return list(compilers.SQLCompiler.apply_converters(self, rows, converters)) if converters else rows  # type: ignore[arg-type]

    execute_sql = rows

    def results_iter(self, rows: Sequence[Sequence[Any]]) -> Sequence[Sequence[Any]]:
        """Return the rows, whose values are converted already."""
        return rows


class Table:
    """The columns of a model's table, and the statements that were compiled for it."""

    changes = 0
    """How often a setting was changed, as in tests: Django may compile something else since."""

    def __init__(self, model: type[models.Model]) -> None:
        self._model = model
        self._name = model._meta.db_table
        self._columns: dict[str, Column] = {}
        self._statements: dict[Any, Statement] = {}
        meta: Any = model._meta
        # A model of several tables, and a proxy, go Django's way.
        if not meta.parents and meta.concrete_model is model:
            for field in meta.concrete_fields:
                column = Column(field)
                if column.takes_parameters:
                    names = (field.name, field.attname, *(("pk",) if field is meta.pk else ()))
                    self._columns |= dict.fromkeys(names, column)

    @classmethod
    def of(cls, model: Any) -> Table:
        """Return the model's table."""
        # Kept by the model, not beside it: it must not outlive a model of a migration or of a test.
        table: Table | None = model.__dict__.get("_lockstep_table")
        if table is None or table._name != model._meta.db_table:
            table = model._lockstep_table = cls(model)
        return table

    def compares(self, conditions: dict[str, Any]) -> bool:
        """Whether ``filter()`` of these conditions does no more than comparing columns with plain values."""
        for name, value in conditions.items():
            column = self._columns.get(name)
            if column is None or not column.compares(value):
                return False
        return True

    def columns(self, names: Iterable[str]) -> list[Column] | None:
        """Return the columns to write; None if there is none, or if one of them is not for us to write."""
        columns = [None if name == "pk" else self._columns.get(name) for name in names]
        return None if None in columns else columns or None  # type: ignore[return-value]

    def reading(self, connection: Any, shape: Shape, values: Sequence[Any], *, is_get: bool) -> BoundStatement | None:
        """Return the SELECT of ``get()`` or of an iteration; None where that is for Django to do."""
        # Django refuses a lock outside of a transaction while it compiles.
        if not _takes(connection) or (shape.lock is not None and connection.get_autocommit()):
            return None

        def build() -> Any:
            rows = shape.query(self._model, map(Parameter, range(len(values))))
            if is_get:
                rows = rows.order_by()
                if shape.lock is None or connection.features.supports_select_for_update_with_limit:
                    rows.query.set_limits(high=MAX_GET_RESULTS)
            return rows.query.get_compiler(connection.alias)

        try:
            params = self._compared(connection, shape, values)
        except ForDjango:
            return None
        return self._statement(connection, (is_get, shape), build).with_values(connection, params)

    def updating(
        self,
        connection: Any,
        shape: Shape,
        values: Sequence[Any],
        *,
        columns: Sequence[Column],
        written: Sequence[Any],
        returning: Any,
    ) -> BoundStatement | None:
        """Return the UPDATE; None where that is for Django to do."""
        if not _takes(connection):
            return None
        try:
            params = [column.to_write(value, connection) for column, value in zip(columns, written, strict=True)]
            compared = self._compared(connection, shape, values)
        except ForDjango:
            return None
        nulls = tuple([param is None for param in params])  # before Django 6.1, NULL is part of the text

        def build() -> Any:
            count = len(columns)
            rows = shape.query(self._model, map(Parameter, range(count, count + len(values))))
            update: Any = rows.query.chain(sql.UpdateQuery)
            places = zip(columns, nulls, range(count), strict=True)
            update.add_update_fields(
                [(column.field, None, None if null else Parameter(at)) for column, null, at in places]
            )
            return _returning(update.get_compiler(connection.alias), returning)

        key = ("update", tuple(columns), nulls, shape, _names(returning))
        return self._statement(connection, key, build).with_values(connection, [*params, *compared])

    def inserting(
        self, connection: Any, columns: Sequence[Column], *, written: Sequence[Any], returning: Any
    ) -> BoundStatement | None:
        """Return the INSERT of one row; None where that is for Django to do."""
        defaults = tuple([isinstance(value, DatabaseDefault) for value in written])
        places = list(zip(columns, written, defaults, strict=True))
        if not _takes(connection):
            return None
        try:
            params = [None if default else column.to_write(value, connection) for column, value, default in places]
        except ForDjango:
            return None

        def build() -> Any:
            values = {c.name: value if default else Parameter(at) for at, (c, value, default) in enumerate(places)}
            insert: Any = sql.InsertQuery(self._model)
            insert.insert_values([column.field for column in columns], [SimpleNamespace(**values)], raw=True)
            return _returning(insert.get_compiler(connection.alias), returning)

        key = ("insert", tuple(columns), defaults, _names(returning))
        return self._statement(connection, key, build).with_values(connection, params)

    def _compared(self, connection: BaseDatabaseWrapper, shape: Shape, values: Sequence[Any]) -> list[Any]:
        columns = self._columns
        return [columns[name].to_compare(value, connection) for name, value in zip(shape.names, values, strict=True)]

    def _statement(self, connection: Any, key: Any, build: Callable[[], Any]) -> Statement:
        """Return the statement with this key, compiled from what ``build`` returns where there is none yet."""
        key = (connection.pg_version, Table.changes, key)
        statement = self._statements.get(key)
        if statement is None:
            if len(self._statements) >= _MOST_STATEMENTS:
                self._statements.clear()
            statement = self._statements[key] = Statement(build())
        return statement


_MOST_STATEMENTS = 500
"""Of one model: where its calls differ so much, a cache does not help."""


def _names(fields: Iterable[Any] | None) -> tuple[str, ...]:
    return tuple([field.name for field in fields or ()])


def _returning(compiler: Any, fields: Any) -> Any:
    compiler.returning_fields = fields
    return compiler


def _senders() -> tuple[Any, ...]:
    """Return the functions of Django's that packages replace, such as caches of results."""
    compiler, update = compilers.SQLCompiler, compilers.SQLUpdateCompiler
    return compiler.execute_sql, update.execute_sql, QuerySet._fetch_all, QuerySet.get


# By where they were written: a package may have been first, and functools.wraps() copies every name.
_DJANGOS = tuple(sender for sender in _senders() if sender.__globals__["__name__"].startswith("django.db."))


def _takes(connection: Any) -> bool:
    """Whether statements are cached for this database, and no package has put itself around Django's compilers."""
    is_cached = connection.vendor == "postgresql" and connection.ops.compiler_module.startswith("django.")
    return bool(is_cached and _senders() == _DJANGOS and _is_enabled())


@functools.cache
def _is_enabled() -> bool:
    """``LOCKSTEP_STATEMENT_CACHE`` (default True): False has Django compile each statement."""
    return bool(getattr(settings, "LOCKSTEP_STATEMENT_CACHE", True))


@receiver(setting_changed)
def _forget(**kwargs: object) -> None:
    _is_enabled.cache_clear()
    Table.changes += 1
