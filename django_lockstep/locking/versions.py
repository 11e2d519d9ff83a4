"""Optimistic locking: a version in every row, and writes that happen only while it is the version that was read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, Self

from asgiref.sync import sync_to_async
from django.core.checks import CheckMessage
from django.core.exceptions import ValidationError
from django.db import connections, models, router, transaction
from django.db.models.base import ModelBase
from django.db.models.functions import Greatest
from django.utils.translation import gettext_lazy as _

from django_lockstep.errors import StaleVersionError, translated_errors
from django_lockstep.locking.checks import ChecksTable, check_guard, check_versioned
from django_lockstep.locking.fields import Microseconds, VersionField, attnames_of, is_key, parents_of, version_field
from django_lockstep.locking.ignoring import logger, versions_ignored
from django_lockstep.locking.memory import (
    adopt,
    apply_written,
    begin_saving,
    current_saving,
    mark_partial,
    remember,
    remember_row,
    remembered,
    seen_version,
    set_saving,
)
from django_lockstep.locking.merge import Merge, merge_fields
from django_lockstep.locking.querysets import VersionedManager
from django_lockstep.locking.rollbacks import last_write, record_write, set_last_write
from django_lockstep.locking.rows import lock_row
from django_lockstep.locking.shapes import compiled_rows
from django_lockstep.locking.writes import column, current_version, python_values, version_kept, write_if

__all__ = ["VersionedModel", "seen_version"]


class VersionedModel(ChecksTable):
    """A model whose rows carry a version: 1 when created (see `VersionField`), one more with every change.

    Every write of an instance, ``save()`` in all its forms, ``delete()`` and `update_if_unchanged`, happens only while
    the row has the version that the instance was read with. A stale write raises `StaleVersionError`, or
    ``DoesNotExist`` where the row was deleted; nothing is written then, and an open transaction goes on. An instance
    whose write a rollback has undone, or may have undone, raises ``ValueError`` until it was read again.

    The migration operation `AddVersionGuard` makes writers that use no instance raise the version too.
    """

    version = VersionField()
    _guards_version = True

    objects = VersionedManager()

    class Meta:
        abstract = True

    def save(
        self,
        *,
        force_insert: bool | tuple[ModelBase, ...] = False,
        force_update: bool = False,
        using: str | None = None,
        update_fields: Iterable[str] | None = None,
        force_write: bool = False,
        **options: Any,
    ) -> None:
        """Write the instance if its row is unchanged since it was read, and raise the version by one.

        The version is always among ``update_fields``. Without a change, by the caller or by a ``pre_save`` receiver,
        the version is only compared, unless ``force_write`` asks for a new one (a field with ``auto_now`` always counts
        as a change). Signals are sent in either case. A deleted row is never inserted again. A copy (``pk = None``, or
        another ``pk``) is a new row with a first version. Further ``options`` are passed on to the next class.

        Raises `StaleVersionError` with the version expected and found, ``DoesNotExist`` where the row was deleted,
        ``ValueError`` before any write for an instance without its version, for one that a rollback may have undone,
        and for ``update_fields`` that are not columns; above READ COMMITTED `SerializationFailure`.
        """
        using = using or self._write_alias()
        names = None if update_fields is None else list(update_fields)
        if not _are_columns(type(self), names):
            super().save(using=using, update_fields=names, **options)  # Django raises the error, also without a change
        if force_insert or self._is_new() or using != self._state.db:
            options |= {"force_insert": force_insert, "force_update": force_update, "update_fields": names}
            self._save_new(using=using, **options)
        elif names != [] and versions_ignored(type(self)):
            with translated_errors(model=type(self), pk=self.pk), transaction.atomic(using=using):
                # The row lock is held from the comparison to the write: the logged version is the overwritten one.
                force_write = self._check_row(using, action="save") or force_write
                self._save_known(names, using=using, force_write=force_write, **options)
        elif names != []:
            self._save_known(names, using=using, force_write=force_write, **options)

    async def asave(self, **options: Any) -> None:
        await sync_to_async(self.save)(**options)

    @classmethod
    def check(cls, **kwargs: object) -> list[CheckMessage]:
        """Add the checks of `django_lockstep.locking.checks` to Django's own."""
        return [*super().check(**kwargs), *check_versioned(cls)]

    @classmethod
    def check_table(cls, alias: str) -> list[CheckMessage]:
        """Return what the table on this database lacks; see `django_lockstep.locking.checks`."""
        return check_guard(cls, alias)

    def clean_fields(self, exclude: Collection[str] | None = None) -> None:
        """Validate as Django does; an existing row also needs the version it was read with."""
        super().clean_fields(exclude=exclude)
        version = version_field(type(self))
        if not self._state.adding and version.name not in (exclude or ()) and not getattr(self, version.attname):
            raise ValidationError({version.name: _("The version that the form was made from is missing.")})

    @classmethod
    def from_db(cls, db: str | None, field_names: Collection[str], values: Any, **options: Any) -> Self:
        """Make the instance as Django does, and remember the values of the row for later comparisons."""
        instance = super().from_db(db, field_names, values, **options)
        remember_row(instance, values)
        return instance

    def refresh_from_db(
        self,
        using: str | None = None,
        fields: Iterable[str] | None = None,
        from_queryset: models.QuerySet[Self] | None = None,
    ) -> None:
        """Read the row again; as Django's.

        Reading a newer version without the other values would let them overwrite later changes: such an instance cannot
        be written until all of its fields are read.
        """
        fields = None if fields is None else list(fields)
        attname = version_field(type(self)).attname
        before = vars(self).get(attname)
        super().refresh_from_db(using=using, fields=fields, from_queryset=from_queryset)
        if fields is None or vars(self).get(attname) != before:
            mark_partial(self, fields is not None)
        if fields is None and last_write(self) is not None:
            # Of a write that is pending, a rollback undoes what was read as well.
            record_write(self, self._state.db or self._write_alias())
        remember(self, None if fields is None else attnames_of(type(self), fields))

    def delete(
        self, using: str | None = None, keep_parents: bool = False, **options: Any
    ) -> tuple[int, dict[str, int]]:
        """Delete the row if it is unchanged since it was read.

        Locks the row ``FOR UPDATE`` first, in the caller's transaction or one of its own. Raises as `save` does, and
        passes further ``options`` on as well.
        """
        # Only what the caller has given: the next class may be one that does not know the others (django-treebeard).
        options |= {name: value for name, value in (("using", using), ("keep_parents", keep_parents)) if value}
        if self.pk is None:
            return super().delete(**options)
        using = using or self._write_alias()
        seen_version(self)
        with translated_errors(model=type(self), pk=self.pk), transaction.atomic(using=using):
            # Locked and compared first: Django deletes related rows before this one, and a late conflict costs much.
            self._check_row(using, action="delete")
            return super().delete(**options)

    def update_if_unchanged(self, **values: object) -> bool:
        """Write the values if the row still has this instance's version, in one guarded UPDATE.

        Returns True on success; the instance then holds the new values and the next version. Returns False where the
        row has another version: nothing was written, the instance is unchanged, and an open transaction goes on. Values
        may be expressions such as ``Now()``; their results are read back in the same transaction.

        Fields with ``auto_now`` are set too. No ``save()`` signals are sent. Needs no transaction and no isolation
        level; above READ COMMITTED a stale write raises `SerializationFailure` instead of returning False.

        Raises ``ValueError`` for an unsaved instance, one without its version, a primary key or a version among the
        values, ``FieldDoesNotExist`` for an unknown name, and the model's ``DoesNotExist`` where the row was deleted.
        """
        model, seen, using = type(self), seen_version(self), self._write_alias()
        changes = python_values(model, values)
        with translated_errors(model=model, pk=self.pk):
            written = write_if(model, self.pk, changes, seen=seen, using=using)
            if not written and current_version(model, self.pk, using=using) is None:
                raise self._conflict(seen, None)
        apply_written(self, {column(model, name).attname: value for name, value in written.items()}, using=using)
        return bool(written)

    async def aupdate_if_unchanged(self, **values: object) -> bool:
        return await sync_to_async(self.update_if_unchanged)(**values)

    def merge_if_disjoint(self) -> Merge:
        """Merge this instance, whose write met a conflict, with the current row.

        Base are the values the instance was read with, mine those it holds, theirs those in the database; the version
        and fields with ``auto_now`` are left out. If both sides changed different fields, the instance takes the merged
        values and the row's version, ready to be saved (which may meet another conflict). Otherwise it is left
        unchanged; the result's ``conflicts`` list what must be decided, its ``version`` names the row's state.

        Raises ``DoesNotExist`` where the row was deleted, ``ValueError`` for an instance without its version.
        """
        seen_version(self)
        version = version_field(type(self))
        using = self._write_alias()
        theirs: Any = type(self)._base_manager.using(using).get(pk=self.pk)
        # The database computes the others itself, or they identify the row.
        fields = [
            field.attname
            for field in self._meta.concrete_fields
            if not (field == version or field.primary_key or field.generated or getattr(field, "auto_now", False))
        ]
        base, mine = (
            # An assigned value may be a string where the row has a number.
            python_values(type(self), {name: values[name] for name in fields if name in values})
            for values in (remembered(self), vars(self))
        )
        merge = merge_fields(base, mine, remembered(theirs), version=theirs.version)
        if merge.disjoint:
            for name, value in {**merge.values, version.attname: merge.version}.items():
                setattr(self, name, value)
            # From now on the current row is the base, so the next save writes only the merged differences.
            adopt(self, theirs)
        return merge

    async def amerge_if_disjoint(self) -> Merge:
        return await sync_to_async(self.merge_if_disjoint)()

    def _check_row(self, using: str, *, action: str) -> bool:
        """Lock the row and raise if it has another version than the one seen; return whether that was ignored."""
        seen, current = seen_version(self), None
        rows: models.QuerySet[Any] = type(self)._base_manager.using(using).filter(pk=self.pk)
        # FOR UPDATE: the key may go.
        if parents_of(type(self)):
            with suppress(type(self).DoesNotExist):
                current = seen_version(lock_row(rows, self.pk, no_key=False))
        else:
            current = rows.select_for_update().values_list(version_field(type(self)).attname, flat=True).first()
        if current == seen:
            return False
        if current is None or not versions_ignored(type(self)):
            raise self._conflict(seen, current, action=action)
        text = "%s of %s %r ignores version %d of the row; the instance was read with version %d"
        logger.warning(text, action, self._meta.label, self.pk, current, seen)
        record_write(self, using)
        setattr(self, version_field(type(self)).attname, current)
        return True

    def _write_alias(self) -> str:
        """Return the database that this instance is written to."""
        return router.db_for_write(type(self), instance=self)

    def _is_new(self) -> bool:
        memory, values = remembered(self), vars(self)
        for field in self._meta.pk_fields:
            value = values.get(field.attname)
            if value is None or memory.get(field.attname) not in (None, value):
                return True
        return self._state.adding

    def _save_new(self, *, using: str, **options: Any) -> None:
        attname = version_field(type(self)).attname
        if getattr(self, attname) is None or (self._is_new() and remembered(self)):
            setattr(self, attname, 0)  # a copy starts with a first version
        # One transaction for several tables, as in Django's save(); the INSERT may fail after the parent's.
        several = transaction.atomic(using=using, savepoint=False) if parents_of(type(self)) else nullcontext()
        self._save_comparing(getattr(self, attname), several, using=using, **options)
        if not getattr(self, attname):  # starts from the clock, and this database has no RETURNING
            setattr(self, attname, current_version(type(self), self.pk, using=using))
        remember(self)

    def _save_known(self, names: list[str] | None, *, using: str, force_write: bool, **options: Any) -> None:
        options |= self._update_only(names)
        several = _several_tables(self, using) if parents_of(type(self)) else nullcontext()
        seen, before = seen_version(self), begin_saving(self, names, force=force_write)
        try:
            self._save_comparing(seen, several, using=using, **options)
        finally:
            set_saving(self, before)
        remember(self, None if names is None else attnames_of(type(self), options["update_fields"]))

    def _update_only(self, names: list[str] | None) -> dict[str, Any]:
        """Return the options that keep Django from inserting a deleted row again, in any of its tables."""
        if names is not None:
            return {"update_fields": [*names, version_field(type(self)).name]}
        if not parents_of(type(self)):
            return {"force_update": True}
        # force_update does not apply to parents' tables, update_fields does.
        fields = [field for field in self._meta.concrete_fields if not (field.primary_key or field.generated)]
        return {"update_fields": [field.name for field in fields if field.attname in vars(self)]}

    def _do_update(
        self,
        base_qs: models.QuerySet[Any],
        using: str | None,
        pk_val: object,
        values: Collection[tuple[models.Field[Any, Any], Any, Any]],
        update_fields: Iterable[str] | None,
        forced_update: bool,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Send Django's UPDATE of one table; that of the version's table only where the row has the seen version.

        `VersionField.pre_save` has put the next version among the values. Django does not call it for rows of fixtures,
        which are saved raw: such a row gets a version above both its own and the fixture's, so that every earlier
        reader is stale.
        """
        version = version_field(type(self))
        seen, running = getattr(self, version.attname), current_saving(self)
        versions = [value for field, _, value in values if field is version]
        guarded = versions == [seen + 1]
        sent = running.columns(self, list(values)) if running else values
        if versions and not guarded:
            above = Greatest(models.F(version.attname), models.Value(versions[0])) + 1
            sent = [(field, None, above if field is version else value) for field, _, value in sent]
        # A class in between may have narrowed the rows.
        is_whole = type(base_qs) is models.QuerySet and not base_qs.query.where
        rows = compiled_rows(base_qs.model._base_manager, base_qs.db) if is_whole else base_qs
        # The condition is in the UPDATE itself: after a wait, READ COMMITTED evaluates it again on the new row version.
        rows = rows.filter(**{version.attname: seen}) if guarded else rows
        # With nothing to write, update_fields=None makes Django look for the row, which compares the version.
        names = update_fields if sent or not guarded else None
        updated = super()._do_update(rows, using, pk_val, sent, names, forced_update, *args, **kwargs)
        if updated and sent:
            record_write(self, base_qs.db)
        if updated and versions and (running is None or running.counts):
            written = seen + 1 if guarded else current_version(type(self), pk_val, using=base_qs.db)
            setattr(self, version.attname, written)
        # A new instance with a version set by hand is a stale copy of an existing row, whose key an INSERT would hit.
        by_hand = guarded and seen and self._state.adding
        if not updated and (forced_update or (by_hand and base_qs.filter(pk=pk_val).exists())):
            # A private error: Django's handling of the transaction has to run before the version is looked up.
            raise _NoRowMatched
        return updated

    def _do_insert(self, manager: object, using: str, fields: Any, returning_fields: object, raw: bool) -> Any:
        """Insert as Django does; a fixture's row gets a new first version where versions start from the clock."""
        version = version_field(type(self))
        if raw and version.start == "clock" and version in fields:
            setattr(self, version.attname, Microseconds())
        rows = compiled_rows(manager, using)
        results = super()._do_insert(rows, using, fields, returning_fields, raw)  # type: ignore[misc]
        record_write(self, using)
        return results

    def _save_comparing(self, seen: int, several: AbstractContextManager[None], *, using: str, **options: Any) -> None:
        """Save as Django does; raise conflicts as our errors, and keep the transaction usable.

        Django marks the transaction for rollback on any error inside ``save()``. A conflict is raised after a statement
        that was executed, so that the transaction was not marked before, and there is nothing to roll back.
        """
        try:
            with translated_errors(model=type(self), pk=self.pk), several:
                super().save(using=using, **options)
        except _NoRowMatched as error:
            if connections[using].in_atomic_block:
                transaction.set_rollback(False, using=using)
            raise self._conflict(seen, current_version(type(self), self.pk, using=using), action="save") from error

    def _conflict(self, seen: int, actual: int | None, *, action: str | None = None) -> Exception:
        if actual is None:
            return type(self).DoesNotExist(f"{self._meta.label} {self.pk!r} was deleted since it was read")
        return StaleVersionError(model=type(self), pk=self.pk, expected=seen, actual=actual, target=self, action=action)


def _are_columns(model: type[models.Model], names: Collection[str] | None) -> bool:
    """Whether all names are of fields that an UPDATE can set."""
    if names is None:  # the common case, without a lookup
        return True
    fields = [field for field in model._meta.concrete_fields if not is_key(model, field)]
    return {name for field in fields for name in (field.name, field.attname)}.issuperset(names)


class _NoRowMatched(Exception):
    """An UPDATE that must write a row matched none; `VersionedModel` decides whether that is a conflict."""


@contextmanager
def _several_tables(instance: models.Model, using: str) -> Iterator[None]:
    """Make a save of several tables atomic, also where the caller's transaction goes on after a conflict."""
    model, version = type(instance), version_field(type(instance))
    elsewhere = version.model is not model._meta.concrete_model
    kept: AbstractContextManager[None] = version_kept(using) if elsewhere else nullcontext()
    seen, write = getattr(instance, version.attname), last_write(instance)
    try:
        with transaction.atomic(using=using), kept:
            yield
    except BaseException:
        # Of the tables' UPDATEs the first may have passed, before another one failed.
        setattr(instance, version.attname, seen)
        set_last_write(instance, write)
        raise
