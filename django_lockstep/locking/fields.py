"""The version field: how a row counts its changes, and where the count of a new row starts."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

from django.core.exceptions import SuspiciousOperation, ValidationError
from django.core.signing import BadSignature, Signer
from django.db import models
from django.db.models.expressions import Combinable
from django.forms import HiddenInput, IntegerField
from django.utils.translation import gettext_lazy as _

_OPTIONS = frozenset(
    {"verbose_name", "name", "help_text", "db_tablespace", "db_column", "editable", "db_index", "db_comment"}
)
_FIXED = {"default": 0, "db_default": 1}

Start = Literal[1, "clock"]
"""What the version of a new row is."""


class Microseconds(models.Func):
    """The microseconds since 1970 on the database's clock.

    A row changes far less often than a million times a second, so all versions of a deleted row lie in the past. The
    values stay below 2**53 until the year 2255, so JavaScript reads them exactly.
    """

    output_field: models.BigIntegerField[int, int] = models.BigIntegerField()

    def as_postgresql(self, compiler: object, connection: object, **context: object) -> Any:
        """Use clock_timestamp(): now() stands still within a transaction, where a row may be deleted and made again."""
        return "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint", []

    def as_mysql(self, compiler: object, connection: object, **context: object) -> Any:
        """Ask for six decimals; MySQL's NOW() has none by default."""
        return "CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)", []

    def as_sqlite(self, compiler: object, connection: object, **context: object) -> Any:
        """Add a random number to the second: SQLite's clock has milliseconds, too coarse for two rows in a row."""
        return "(CAST((julianday('now') - 2440587.5) * 86400 AS INTEGER) * 1000000 + (random() & 1048575))", []


if TYPE_CHECKING:
    _Counter = models.PositiveBigIntegerField[int | Combinable, int]
else:
    _Counter = models.PositiveBigIntegerField  # fields cannot be subscribed at run time


class VersionField(_Counter):
    """A counter of the row's changes; `VersionedModel` compares it before it writes.

    An instance that was never saved has version 0. Rows start at 1 by the column's default, also rows that other
    programs insert and rows of a table that gets the field later: 0 always means "never seen".

    With ``start="clock"`` rows start at the microseconds since 1970 on the database's clock instead. A row that is
    deleted and made again under the same key then has a version that the old row never had, so that no stale write of
    the old row passes. ``start=1`` states that this cannot happen or does not matter; a system check asks for one of
    the two where keys are assigned by hand.

    ``uncounted`` names columns of the same table whose change is not a new version, such as counters and times of last
    use. A save of these columns alone is compared like every other save, but does not raise the version; a save of
    other columns leaves them out unless the instance changed them.

    Also takes ``db_column``, ``verbose_name``, ``help_text``, ``db_tablespace``, ``editable``, ``db_index`` and
    ``db_comment``; raises ``TypeError`` for any other option, ``ValueError`` for another start.
    """

    non_db_attrs = (*models.Field.non_db_attrs, "uncounted")

    def __init__(self, *args: object, start: Start | None = None, uncounted: Iterable[str] = (), **kwargs: Any) -> None:
        wrong = {name for name, value in kwargs.items() if name in _FIXED and value != _FIXED[name]}
        wrong |= kwargs.keys() - _OPTIONS - _FIXED.keys()
        if wrong or args:
            raise TypeError(f"VersionField does not take {', '.join(sorted(wrong)) or 'positional arguments'}")
        if start not in {None, 1, "clock"}:
            raise ValueError(f"start must be 1 or 'clock', not {start!r}")
        self.start = start
        self.uncounted = tuple(uncounted)
        first = {"db_default": Microseconds()} if start == "clock" else {}
        super().__init__(**{"help_text": _("record revision number"), **kwargs, **_FIXED, **first})

    def deconstruct(self) -> Any:
        """Return what migrations write: the options, and not the defaults that follow from them."""
        name, path, args, kwargs = super().deconstruct()
        if self.start == "clock":
            kwargs = {**kwargs, "start": self.start}
            del kwargs["db_default"]
        if self.uncounted:
            kwargs = {**kwargs, "uncounted": self.uncounted}
        return name, path, args, kwargs

    def pre_save(self, model_instance: models.Model, add: bool) -> Any:
        """Return the version that the row gets: the first for a new one, one more with each change.

        An UPDATE by a model that is not a `VersionedModel`, such as a model of a data migration, is not compared. It
        counts from the row's version, so that a stale instance cannot lower it.
        """
        version = getattr(model_instance, self.attname)
        if not add:
            # A literal for a guarded save, whose WHERE has the old version; F() where nothing compares it.
            return version + 1 if getattr(model_instance, "_guards_version", False) else models.F(self.attname) + 1
        if self.start == "clock":
            return Microseconds()  # ignores a version set by hand: it belongs to an earlier row with this key
        setattr(model_instance, self.attname, version or 1)
        return version or 1

    def formfield(self, **kwargs: Any) -> Any:
        """Return a hidden field whose value is signed: the version that the form was made from."""
        return models.Field.formfield(self, **{**kwargs, "form_class": SignedVersionField, "widget": HiddenInput})


class SignedVersionField(IntegerField):
    """The version in a form, signed. Raises ``SuspiciousOperation`` for a signature that is not ours."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "required": True, "initial": None})

    def prepare_value(self, value: object) -> Any:
        """Return the signed value; a value that was sent is shown again unchanged."""
        return _signer().sign(str(value)) if value and isinstance(value, int) else value or ""

    def to_python(self, value: object) -> int:
        """Return the version; 0 where the form has none, as in a form for a new object."""
        if value in {None, ""}:
            return 0
        try:
            return int(_signer().unsign(str(value)))
        except (BadSignature, ValueError) as error:
            raise SuspiciousOperation(
                "The version that the form was sent with is not the one it was made with"
            ) from error


def _signer() -> Signer:
    return Signer(salt="lockstep.version")


def parents_of(model: type[models.Model]) -> dict[type[models.Model], models.Field[Any, Any] | None]:
    """Return the models whose tables the model's rows are in as well, with the links to them; a proxy's too."""
    concrete = model._meta.concrete_model or model
    return dict(concrete._meta.parents)


@functools.cache
def tables_of(model: type[models.Model]) -> tuple[type[models.Model], ...]:
    """Return the models whose tables hold a row of this one, in the order in which ``save()`` writes them."""
    inherited = (table for parent in parents_of(model) for table in tables_of(parent))
    return (*inherited, model._meta.concrete_model or model)


def primary_key(model: type[models.Model], value: Any) -> Any:
    """Return a primary key as its fields' types; a composite key as a tuple, also of a JSON array.

    Raises ``ValueError`` or ``TypeError`` if the value cannot be a key of the model.
    """
    parts = model._meta.pk_fields
    if len(parts) > 1:
        value = json.loads(value) if isinstance(value, str) else value
        if not isinstance(value, list | tuple) or len(value) != len(parts):
            raise ValueError(f"a primary key of {model._meta.label} needs {len(parts)} parts, not {value!r}")
    try:
        key = [field.to_python(part) for field, part in zip(parts, value if len(parts) > 1 else [value], strict=True)]
    except ValidationError as error:
        raise ValueError(
            f"{value!r} is not a primary key of {model._meta.label}: {' '.join(error.messages)}"
        ) from error
    if not all(is_storable(part) for part in key if isinstance(part, str)):
        raise ValueError(
            f"{value!r} is not a primary key of {model._meta.label}: it contains NUL or half of a surrogate"
        )
    return tuple(key) if len(parts) > 1 else key[0]


def is_storable(text: str) -> bool:
    """Whether a database can store the text: PostgreSQL has no NUL, and half of a surrogate pair cannot be encoded."""
    return "\0" not in text and (text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text))


def is_key(model: type[models.Model], field: models.Field[Any, Any]) -> bool:
    """Whether the column identifies the row, alone, with others, or in a parent's table."""
    return field.primary_key or field in model._meta.pk_fields


def attnames_of(model: type[models.Model], names: Iterable[str] | None) -> list[str]:
    """Return the attribute names of the columns meant by names of fields or attributes (None: of all columns)."""
    selection = None if names is None else set(names)
    return [
        field.attname
        for field in model._meta.concrete_fields
        if selection is None or not selection.isdisjoint((field.name, field.attname))
    ]


@functools.cache
def version_field(model: type[models.Model]) -> VersionField:
    """Return the model's version field. Raises ``TypeError`` if it has none."""
    for field in model._meta.concrete_fields:
        if isinstance(field, VersionField):
            return field
    raise TypeError(f"{model._meta.label} has no version field")


@functools.cache
def uncounted_fields(model: type[models.Model]) -> frozenset[models.Field[Any, Any]]:
    """Return the columns whose change is not a new version. Raises ``FieldDoesNotExist`` for an unknown name."""
    version = version_field(model)
    return frozenset(version.model._meta.get_field(name) for name in version.uncounted)  # type: ignore[misc]
