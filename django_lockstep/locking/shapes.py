"""SQL compiled once: a query set that sends a statement it has seen before without having Django build it again.

Building a statement costs Django several times as much as sending it. `CompiledQuerySet` notes what is asked of it, its
*shape* (which columns are compared and locked) apart from the values, and builds a query only when its ``query`` is
read. For a shape that was seen before, the statement that Django's compiler made is sent with other parameters, through
Django's cursor, and Django's own code makes the instances. Whatever has no shape goes Django's way:

    all(), using(), select_for_update()              have a shape where nothing else was asked
    filter(), get()                                  where plain values of plain columns are compared for equality
    update(), save() of an instance                  where no value is an expression
    create(), save() of a new instance               where none is, but for a column's ``db_default``

The shape is lost with the first look at ``QuerySet.query``: every other method of Django's, and of other packages,
begins with that, so that none can be misread. PostgreSQL only. SQLAlchemy documents the same idea as "SQL compilation
caching"; docs/measure/statement-cache.md says what it wins.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Self, TypeVar

from django.db import connections, models, transaction
from django.db.models.query import MAX_GET_RESULTS, ModelIterable, QuerySet

from django_lockstep.locking.statements import BoundStatement, Column, Shape, Table

M = TypeVar("M", bound=models.Model)
Q = TypeVar("Q", bound="CompiledQuerySet[Any]")

_NOTHING = Shape()
_UNBUILT: Any = object()
"""In place of a query that was not read yet."""


class CompiledQuerySet(QuerySet[M]):
    """A query set whose common statements are compiled once; see the module.

    Results, errors, signals, the query log and what routers are asked are Django's. A subclass that replaces what
    Django calls in between, such as ``_clone()``, goes Django's way.
    """

    _shape: Shape | None
    _compared: tuple[Any, ...]
    """The values of the shape."""
    _built: Any
    _db: str | None
    _hints: dict[str, Any]

    def __init__(self, model: Any = None, query: Any = None, using: str | None = None, hints: Any = None) -> None:
        super().__init__(model, query or _UNBUILT, using, hints)

    @property
    def _query(self) -> Any:
        # Whoever reads the query may change it: from now on it says more than the shape does. The shape goes last, for
        # another thread may read it at the same time.
        shape = self._shape
        if shape is not None:
            self._built = shape.query(self.model, self._compared).query
            self._shape = None
        return self._built

    @_query.setter
    def _query(self, query: Any) -> None:
        is_unbuilt = query is _UNBUILT
        self._built, self._shape, self._compared = (None, _NOTHING, ()) if is_unbuilt else (query, None, ())

    def all(self) -> Self:
        shape = self._whole_shape()
        return super().all() if shape is None else self._copy(shape)

    def using(self, alias: str | None) -> Self:
        shape = self._whole_shape()
        if shape is None:
            return super().using(alias)
        copy: Self = self._copy(shape)
        copy._db = alias
        return copy

    def select_for_update(
        self, nowait: bool = False, skip_locked: bool = False, of: Sequence[str] = (), no_key: bool = False
    ) -> Self:
        shape = self._whole_shape()
        if shape is None or (nowait and skip_locked):
            return super().select_for_update(nowait, skip_locked, of, no_key)
        copy: Self = self._copy(Shape((nowait, skip_locked, tuple(of), no_key), shape.names))
        copy._for_write = True
        return copy

    def filter(self, *args: Any, **kwargs: Any) -> Self:
        shape = self._whole_shape()
        if shape is None or args or not Table.of(self.model).compares(kwargs):
            return super().filter(*args, **kwargs)
        names = sorted(kwargs)  # as Django's Q() does
        copy: Self = self._copy(Shape(shape.lock, (*shape.names, *names)))
        copy._compared += tuple([kwargs[name] for name in names])
        return copy

    def get(self, *args: Any, **kwargs: Any) -> M:
        if self._shape is None:
            return super().get(*args, **kwargs)
        rows = self.filter(*args, **kwargs)
        instances = rows._instances(is_get=True)
        if instances is None:
            return super(CompiledQuerySet, rows).get()
        if len(instances) == 1:
            return instances[0]
        model: Any = self.model
        name = model._meta.object_name
        if not instances:
            raise model.DoesNotExist(f"{name} matching query does not exist.")
        count = f"more than {MAX_GET_RESULTS - 1}" if len(instances) == MAX_GET_RESULTS else len(instances)
        raise model.MultipleObjectsReturned(f"get() returned more than one {name} -- it returned {count}!")

    def _fetch_all(self) -> None:
        if self._result_cache is None and self._shape is not None:
            self._result_cache = self._instances(is_get=False)
        super()._fetch_all()

    def update(self, **kwargs: Any) -> int:
        table = Table.of(self.model)
        self._for_write = True
        statement = self._updating(table, table.columns(kwargs), list(kwargs.values()))
        if statement is None:
            return super().update(**kwargs)
        with transaction.mark_for_rollback_on_error(using=statement.connection.alias):
            count = statement.count()
        self._result_cache = None
        return count

    update.alters_data = True  # type: ignore[attr-defined]

    def _update(self, values: Sequence[tuple[Any, Any, Any]], *args: Any) -> Any:
        """Send the UPDATE of ``save()``."""
        table, returning = Table.of(self.model), args[0] if args else None
        columns = table.columns([field.attname for field, _, _ in values])
        statement = self._updating(table, columns, [value for _, _, value in values], returning)
        if statement is None:
            return super()._update(values, *args)  # type: ignore[misc]
        self._result_cache = None
        if returning:
            return statement.rows()
        return statement.count() if returning is None else [()] * statement.count()

    _update.alters_data = True  # type: ignore[attr-defined]
    _update.queryset_only = False  # type: ignore[attr-defined]

    def _insert(
        self,
        objs: Any,
        fields: Any,
        returning_fields: Any = None,
        raw: bool = False,
        using: str | None = None,
        **conflicts: Any,
    ) -> Any:
        """Send the INSERT of ``save()`` or ``create()``."""
        table = Table.of(self.model)
        columns = table.columns([field.attname for field in fields])
        if columns is None or len(objs) != 1 or any(conflicts.values()) or not _has_djangos_methods(type(self)):
            return super()._insert(objs, fields, returning_fields, raw, using, **conflicts)  # type: ignore[misc]
        self._for_write = True
        using = self.db if using is None else using
        values = [getattr(objs[0], field.attname) if raw else field.pre_save(objs[0], add=True) for field in fields]
        statement = table.inserting(connections[using], columns, written=values, returning=returning_fields)
        if statement is None:
            # What pre_save() has computed must not be computed again.
            row = SimpleNamespace(**{field.attname: value for field, value in zip(fields, values, strict=True)})
            return super()._insert([row], fields, returning_fields, True, using)  # type: ignore[misc]
        if returning_fields:
            return statement.rows()
        statement.count()
        return []

    _insert.alters_data = True  # type: ignore[attr-defined]
    _insert.queryset_only = False  # type: ignore[attr-defined]

    def _whole_shape(self) -> Shape | None:
        """Return the shape, if it says everything about this query set."""
        rows: Any = self
        shape: Shape | None = rows._shape
        if shape is None or not _has_djangos_methods(type(self)):
            return None
        other = rows._sticky_filter or rows._defer_next_filter or rows._deferred_filter or rows._fields
        other = other or rows._prefetch_related_lookups or rows._known_related_objects
        # Django 6.1 can turn cloning off.
        other = other or not getattr(rows, "_cloning_enabled", True)
        return None if other or self._iterable_class is not ModelIterable else shape

    def _copy(self, shape: Shape, kind: Any = None) -> Any:
        """Return what ``_clone()`` would, but with a shape instead of a query; of another class if one is given."""
        copy: Any = (kind or type(self))(self.model, using=self._db, hints=self._hints)
        copy._shape, copy._compared = shape, self._compared
        copy._for_write = self._for_write
        if hasattr(self, "_fetch_mode"):  # Django 6.1
            copy._fetch_mode = self._fetch_mode
        return copy

    def _instances(self, *, is_get: bool) -> list[M] | None:
        """Return what the rows are made into; None where that is for Django to do."""
        shape = self._whole_shape()
        if shape is None:
            return None
        using = self.db
        statement = Table.of(self.model).reading(connections[using], shape, self._compared, is_get=is_get)
        if statement is None:
            return None
        # ModelIterable asks no more of a query set than this.
        rows: Any = SimpleNamespace(
            db=using,
            model=self.model,
            query=SimpleNamespace(get_compiler=lambda using: statement),
            _known_related_objects={},
            _fetch_mode=getattr(self, "_fetch_mode", None),
        )
        return list(ModelIterable(rows))

    def _updating(
        self, table: Table, columns: Sequence[Column] | None, values: list[Any], returning: Any = None
    ) -> BoundStatement | None:
        """Return the UPDATE; None where that is for Django to do."""
        shape = self._whole_shape()
        if columns is None or shape is None or shape.lock is not None:
            return None
        return table.updating(
            connections[self.db], shape, self._compared, columns=columns, written=values, returning=returning
        )


CompiledManager = models.Manager.from_queryset(CompiledQuerySet, "CompiledManager")
"""A manager for any model; a project's own manager derives from it or from ``CompiledQuerySet``."""


def compiled_rows(manager: Any, using: str | None = None) -> QuerySet[Any]:
    """Return the manager's rows; as a `CompiledQuerySet` where its class is Django's own, which hides none."""
    if type(manager) is not models.Manager:
        return manager.using(using) if using else manager.all()  # type: ignore[no-any-return]
    hidden: Any = manager
    return CompiledQuerySet(manager.model, using=using or hidden._db, hints=hidden._hints)


def in_class(rows: Any, kind: type[Q], using: str | None = None) -> Q:
    """Return the rows as a query set of another class, without building the query where nothing else needs it."""
    shape = rows._whole_shape() if isinstance(rows, CompiledQuerySet) else None
    copy: Q = kind(rows.model, query=rows.query, hints=rows._hints) if shape is None else rows._copy(shape, kind)
    copy._db = using or rows._db
    return copy


_PRIVATE = ("_chain", "_clone", "_filter_or_exclude", "_filter_or_exclude_inplace", "_iterator")
_IN_BETWEEN = (*_PRIVATE, "__len__", "db", "query", "order_by")


@functools.cache
def _has_djangos_methods(queryset: type[CompiledQuerySet[Any]]) -> bool:
    """Whether what Django calls between our methods and the database is Django's own."""
    bases = queryset.__mro__
    return (
        bases[bases.index(CompiledQuerySet) + 1] is QuerySet
        and queryset.__init__ is CompiledQuerySet.__init__
        and all(getattr(queryset, name) is getattr(QuerySet, name) for name in _IN_BETWEEN)
    )
