"""What was read stays as it was read until the transaction has committed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db import connections, models, router

from django_lockstep.errors import StaleVersionError, translated_errors
from django_lockstep.locking.fields import version_field
from django_lockstep.locking.rows import require_transaction
from django_lockstep.locking.seen import seen_version

__all__ = ["verify_unchanged"]


def verify_unchanged(*instances: models.Model, using: str | None = None) -> None:
    """Make sure, at the end of a transaction, that rows it only read are still as they were read.

    A transaction that decides by some rows and writes others loses to one that does it the other way round: each writes
    what the other one has read, and neither meets a conflict (write skew). Name the instances that the decision rests
    on, as the last thing before the end of ``atomic()``: their rows are locked ``FOR SHARE`` in primary-key order, one
    statement for each table, and compared with the versions the instances were read with. Nobody can change them from
    there to COMMIT. Two such transactions wait for each other: retry on `DeadlockDetected` as on `StaleVersionError`.

    For instances of `VersionedModel`, in READ COMMITTED; above it a change is a `SerializationFailure`. Databases
    without ``FOR SHARE`` lock as ``select_for_update()`` does.

    Raises ``TransactionManagementError`` outside a transaction, `StaleVersionError` for the first row with another
    version, ``DoesNotExist`` for one that is gone, ``ValueError`` for an instance without its version.
    """
    groups: dict[tuple[str, type[models.Model]], list[models.Model]] = {}
    for instance in instances:
        seen_version(instance)
        alias = using or router.db_for_write(type(instance), instance=instance)
        groups.setdefault((alias, version_field(type(instance)).model), []).append(instance)
    for alias, owner in groups:
        require_transaction(connections[alias], owner)
    # In one order for all callers, as the rows of each table.
    for (alias, owner), each in sorted(groups.items(), key=lambda group: (group[0][0], group[0][1]._meta.label)):
        _compare(owner, each, using=alias)


def _compare(owner: type[models.Model], instances: list[models.Model], *, using: str) -> None:
    keys = [instance._get_pk_val(owner._meta) for instance in instances]
    with translated_errors(model=owner, pk=keys):
        found = _versions_held(owner, set(keys), using=using)
    for key, instance in zip(keys, instances, strict=True):
        seen, model = seen_version(instance), type(instance)
        if key not in found:
            raise model.DoesNotExist(  # type: ignore[attr-defined]
                f"{model._meta.label} {instance.pk!r} was deleted since it was read"
            )
        if found[key] != seen:
            raise StaleVersionError(
                model=model, pk=instance.pk, expected=seen, found=found[key], target=instance, action="verify"
            )


def _versions_held(owner: type[models.Model], keys: set[Any], *, using: str) -> dict[Any, int]:
    """Lock the rows against change, and return their versions by key."""
    version = version_field(owner)
    rows = owner._base_manager.using(using).filter(pk__in=keys).order_by("pk").only("pk", version.name)
    held: Iterable[Any] = rows.select_for_update()
    if connections[using].vendor == "postgresql":
        # Two readers of a row do not have to wait for each other. Django has no name for this lock.
        sql, params = rows.query.sql_with_params()
        held = owner._base_manager.using(using).raw(f"{sql} FOR SHARE", params)
    return {row.pk: getattr(row, version.attname) for row in held}
