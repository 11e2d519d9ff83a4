"""Statements of the query set API, or written by hand, as text with a `Parameter` for each value that calls give.

Each is one round trip; `Compiled.bind` only adapts the values, as their fields would.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models.sql import UpdateQuery
from psycopg.types.numeric import Int8

from django_lockstep.locking import prepared
from django_lockstep.locking.statements import Column


class Parameter(models.Value):
    """A placeholder in a query for a value that each call gives by name.

    The value is adapted as if it were written into ``output_field``; without one, psycopg takes it unchanged.
    """

    def __init__(self, name: str, output_field: models.Field[Any, Any] | None = None) -> None:
        super().__init__(name, output_field=output_field)
        self.name = name
        self._column = None if output_field is None else Column(output_field)

    def as_sql(self, compiler: object, connection: BaseDatabaseWrapper) -> tuple[str, Any]:
        return "%s", [self]

    def adapt(self, value: object, connection: BaseDatabaseWrapper) -> Any:
        """Return the value for the driver."""
        if self._column is None:
            return value
        sent = self._column.to_write(value, connection)
        # psycopg's type for an int is the smallest that holds it, and each type would be another prepared statement.
        return Int8(sent) if type(sent) is int else sent


def parameter(model: type[models.Model], name: str, *, called: str | None = None) -> Parameter:
    """Return the parameter for a value of this field; calls give it by the field's name, or by ``called``."""
    field: Any = model._meta.pk if name == "pk" else model._meta.get_field(name)
    # A foreign key's value is what its column holds.
    return Parameter(called or name, getattr(field, "target_field", field))


@dataclass(frozen=True, slots=True)
class Compiled:
    """A statement, or a part of one, with its parameters."""

    sql: str
    """The text, with ``%s`` for each place."""
    places: tuple[Any, ...]
    """In order: a `Parameter`, or a constant value."""

    def bind(self, connection: BaseDatabaseWrapper, values: Mapping[str, object]) -> list[Any]:
        """Return the parameters to send. Raises ``KeyError`` for a value that is missing."""
        return [
            place.adapt(values[place.name], connection) if isinstance(place, Parameter) else place
            for place in self.places
        ]

    def fetch(self, connection: BaseDatabaseWrapper, values: Mapping[str, object]) -> list[tuple[Any, ...]]:
        """Send it and return the rows; see `django_lockstep.locking.prepared`."""
        return prepared.fetch(connection, self.sql, self.bind(connection, values))

    def write(self, connection: BaseDatabaseWrapper, values: Mapping[str, object]) -> int:
        """Send it and return how many rows it wrote."""
        return prepared.send(connection, self.sql, self.bind(connection, values)).rowcount

    def __add__(self, part: Compiled | str) -> Compiled:
        if isinstance(part, str):
            return Compiled(self.sql + part, self.places)
        return Compiled(self.sql + part.sql, self.places + part.places)

    def __radd__(self, text: str) -> Compiled:
        return Compiled(text + self.sql, self.places)


def plain(name: str) -> Compiled:
    """Return a placeholder for a value that psycopg takes unchanged."""
    return Compiled("%s", (Parameter(name),))


def compile_select(rows: models.QuerySet[Any]) -> Compiled:
    """Return what iterating over the rows would send."""
    sql, params = rows.query.get_compiler(rows.db).as_sql()
    return Compiled(sql, tuple(params))


def compile_update(rows: models.QuerySet[Any], values: Mapping[str, object]) -> Compiled:
    """Return what ``rows.update(**values)`` would send."""
    query: Any = rows.query.chain(UpdateQuery)
    query.add_update_values(dict(values))
    sql, params = query.get_compiler(rows.db).as_sql()
    # Constant integers, such as that of F("count") + 1, go into the text: the driver then has one parameter less to
    # adapt in every call.
    first, *texts = sql.split("%s")
    compiled = Compiled(first, ())
    for place, text in zip(params, texts, strict=True):
        is_integer = isinstance(place, int) and not isinstance(place, bool)
        compiled = compiled + (f"{int(place)}" if is_integer else Compiled("%s", (place,))) + text
    return compiled
