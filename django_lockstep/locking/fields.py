"""The version's field."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from concurrency.fields import AutoIncVersionField
from concurrency.fields import VersionField as ConcurrencyVersionField
from django.db import DatabaseError, models
from django.db.models.signals import pre_save

__all__ = ["VersionField", "attnames_of", "parents_of", "save_as_django_concurrency", "tables_of", "version_field"]

_SET_BY_BASE = frozenset({"verbose_name", "name", "help_text", "db_tablespace", "db_column"})
_SET_HERE = frozenset({"editable", "db_index", "db_comment"})
_FIXED = {"default": 0, "db_default": 1}
_RAW = "_version_taken_as_given"


class VersionField(AutoIncVersionField):  # type: ignore[misc]
    """django-concurrency's dense counter, with a guard that nothing switches off.

    An instance that was never saved has version 0. Rows begin at 1, also those that other programs insert and those of
    a table that gets its version later, by the column's default: 0 always means "never seen".

    Takes ``db_column``, ``verbose_name``, ``help_text``, ``db_tablespace``, ``editable``, ``db_index`` and
    ``db_comment``; raises ``TypeError`` for any other option, where the base class would drop it silently.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        wrong = {name for name, value in kwargs.items() if name in _FIXED and value != _FIXED[name]}
        wrong |= kwargs.keys() - _SET_BY_BASE - _SET_HERE - _FIXED.keys()
        if wrong or args:
            raise TypeError(f"VersionField does not take {', '.join(sorted(wrong)) or 'positional arguments'}")
        super().__init__(**{name: value for name, value in kwargs.items() if name in _SET_BY_BASE})
        self.db_default = _FIXED["db_default"]
        for name in kwargs.keys() & _SET_HERE:
            setattr(self, name, kwargs[name])

    @classmethod
    def wrap_model(cls, model: type[models.Model], force: bool = False) -> None:
        """Put the guard into the model's ``save()``; django-concurrency calls it for every model with the field."""
        pre_save.connect(_note_raw, sender=model)
        super().wrap_model(model, force=force)

    def _wrap_do_update(self, do_update: Callable[..., Any]) -> Callable[..., Any]:
        """Return Django's UPDATE of one table, narrowed to the version that the instance has.

        The base class would look for the row first, and obey switches that are global to the process.
        """

        @functools.wraps(do_update)
        def guarded(
            instance: models.Model,
            rows: models.QuerySet[Any],
            using: str,
            pk: Any,
            values: Any,
            *args: Any,
            **more: Any,
        ) -> Any:
            version = version_field(type(instance))
            columns = {field for field, _, _ in values}
            if rows.model is not version.model or version not in columns or getattr(instance._state, _RAW, False):
                return do_update(instance, rows, using, pk, values, *args, **more)
            seen = getattr(instance, version.attname)
            values = [(f, model, seen + 1 if f == version else value) for f, model, value in values]
            unchanged = rows.filter(**{version.attname: seen})
            updated = do_update(instance, unchanged, using, pk, values, *args, **more)
            if updated:
                setattr(instance, version.attname, seen + 1)
            elif seen and instance._state.adding and rows.filter(pk=pk).exists():
                # Made by hand from an older state of a row: an INSERT could only meet its key.
                raise DatabaseError(f"A save of version {seen} did not affect any rows.")
            return updated

        return guarded


def _note_raw(instance: models.Model, raw: bool, **_: Any) -> None:
    """Note whether a fixture is being loaded: its rows are taken as they are, version included."""
    setattr(instance._state, _RAW, raw)


def parents_of(model: type[models.Model]) -> dict[type[models.Model], models.Field[Any, Any] | None]:
    """Return the models whose tables the model's rows are in as well, with the links to them; a proxy's too."""
    concrete = model._meta.concrete_model or model
    return dict(concrete._meta.parents)


@functools.cache
def tables_of(model: type[models.Model]) -> tuple[type[models.Model], ...]:
    """Return the models whose tables hold a row of this one, in the order in which ``save()`` writes them."""
    inherited = (each for parent in parents_of(model) for each in tables_of(parent))
    return (*inherited, model._meta.concrete_model or model)


def attnames_of(model: type[models.Model], names: Iterable[str] | None) -> list[str]:
    """Return the attribute names of the columns meant by names of fields or attributes (None: of all columns)."""
    wanted = None if names is None else set(names)
    return [
        field.attname
        for field in model._meta.concrete_fields
        if wanted is None or not wanted.isdisjoint((field.name, field.attname))
    ]


@functools.cache
def version_field(model: type[models.Model]) -> ConcurrencyVersionField:
    """Return the model's version field. Raises ``TypeError`` if it has none."""
    for field in model._meta.concrete_fields:
        if isinstance(field, ConcurrencyVersionField):
            return field
    raise TypeError(f"{model._meta.label} has no version field")


def save_as_django_concurrency(instance: models.Model, *, using: str | None = None) -> None:
    """Save as django-concurrency does on its own, without what `VersionField` and `VersionedModel` add.

    For comparison only. Raises ``RecordModifiedError`` for a stale version.
    """
    theirs = AutoIncVersionField._wrap_do_update(version_field(type(instance)), models.Model._do_update)
    vars(instance)["_do_update"] = functools.partial(theirs, instance)
    try:
        models.Model.save(instance, using=using)
    finally:
        del vars(instance)["_do_update"]
