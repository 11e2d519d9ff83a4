"""Checks that rows which a transaction only read are unchanged until it commits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connections, models, router

from django_lockstep.errors import StaleVersionError, translated_errors
from django_lockstep.locking.fields import version_field
from django_lockstep.locking.memory import seen_version
from django_lockstep.locking.rows import require_transaction


def verify_unchanged(*instances: models.Model, using: str | None = None) -> None:
    """Check, at the end of a transaction, that rows which it only read are unchanged, and keep them so until COMMIT.

    Two transactions that each read the rows the other writes do not conflict, although no serial order explains the
    result (write skew). Pass the instances that the decision is based on as the last statement inside ``atomic()``:
    their rows are locked ``FOR SHARE`` in primary-key order, one statement for each table, and compared with the
    versions the instances were read with. Other transactions cannot change them before COMMIT. Two such transactions
    wait for each other: retry on `DeadlockDetected` as on `StaleVersionError`.

    For instances of `VersionedModel`, in READ COMMITTED; above it a change is a `SerializationFailure`. Databases
    without ``FOR SHARE`` lock as ``select_for_update()`` does.

    Raises ``TransactionManagementError`` outside a transaction, `StaleVersionError` for the first row with another
    version, ``DoesNotExist`` for a deleted row, ``ValueError`` for an instance without its version.
    """
    groups: dict[tuple[str, type[models.Model]], list[models.Model]] = {}
    for instance in instances:
        seen_version(instance)
        alias = using or router.db_for_write(type(instance), instance=instance)
        groups.setdefault((alias, version_field(type(instance)).model), []).append(instance)
    for alias, owner in groups:
        # All databases are checked before the first lock is taken.
        require_transaction(connections[alias], owner)
    # Tables in one order for all callers, like the rows of each table: two callers never deadlock here.
    for (alias, owner), rows in sorted(groups.items(), key=lambda group: (group[0][0], group[0][1]._meta.label)):
        _compare(owner, rows, using=alias)


averify_unchanged = sync_to_async(verify_unchanged)
"""The async twin of `verify_unchanged`, in a transaction of sync code, as `alock_row`."""


def _compare(owner: type[models.Model], instances: list[models.Model], *, using: str) -> None:
    keys = [instance._get_pk_val(owner._meta) for instance in instances]
    with translated_errors(model=owner, pk=keys):
        versions = _lock_versions(owner, list(set(keys)), using=using)
    for key, instance in zip(keys, instances, strict=True):
        model: Any = type(instance)
        seen = seen_version(instance)
        if key not in versions:
            raise model.DoesNotExist(f"{model._meta.label} {instance.pk!r} was deleted since it was read")
        if versions[key] != seen:
            raise StaleVersionError(
                model=model, pk=instance.pk, expected=seen, actual=versions[key], target=instance, action="verify"
            )


def _lock_versions(owner: type[models.Model], keys: list[Any], *, using: str) -> dict[Any, int]:
    """Lock the rows FOR SHARE, and return their versions by key."""
    connection = connections[using]
    columns = [field.attname for field in owner._meta.pk_fields]
    queryset = owner._base_manager.using(using).filter(pk__in=keys).order_by("pk")
    values = queryset.values_list(*columns, version_field(owner).attname)
    if connection.vendor != "postgresql":
        rows: Iterable[Any] = values.select_for_update()
    else:
        # FOR SHARE lets other readers verify the same row at once. Django's query sets cannot express it.
        compiler = values.query.get_compiler(using)
        sql, params = compiler.as_sql()
        with connection.cursor() as cursor:
            cursor.execute(f"{sql} FOR SHARE", params)
            rows = list(compiler.results_iter([cursor.fetchall()]))
    return {tuple(key) if len(key) > 1 else key[0]: version for *key, version in rows}
