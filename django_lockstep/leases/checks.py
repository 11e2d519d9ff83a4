"""System checks of the app: what a project's databases and views cannot promise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core import checks
from django.core.checks import CheckMessage, Error, Tags, register
from django.db import connections, router

from django_lockstep.leases.operations import function_names, sequence_name
from django_lockstep.leases.stores import lease_model

__all__ = ["check_guards", "check_storage"]


@register(Tags.models)
def check_guards(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Tell on which database leases have no guard."""
    alias = router.db_for_write(lease_model())
    connection = connections[alias]
    if connection.vendor in ("postgresql", "unknown"):
        return []
    return [
        checks.Warning(
            f"Leases on database {alias!r} ({connection.vendor}) have no guard: a holder that was paused can write "
            "after another one took over, waiters have no queue, and statements no time limit.",
            hint="Use PostgreSQL, or write with update_if_token(), which refuses lower tokens.",
            obj=alias,
            id="lockstep.W020",
        )
    ]


@register(Tags.database)
def check_storage(app_configs: Any, databases: Sequence[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """Ask each database whether the sequence and the function belong to its table of leases."""
    model = lease_model()
    table = model._meta.db_table
    return [
        _storage_missing(alias)
        for alias in databases or ()
        if connections[alias].vendor == "postgresql"
        and router.allow_migrate_model(alias, model)
        and _lacks_storage(alias, table)
    ]


def _lacks_storage(alias: str, table: str) -> bool:
    quote = connections[alias].ops.quote_name
    functions = [quote(name) for name in function_names(table).values()]
    with connections[alias].cursor() as cursor:
        cursor.execute(
            "SELECT to_regclass(%s) IS NOT NULL AND (to_regclass(%s) IS NULL"
            " OR EXISTS (SELECT FROM unnest(%s::text[]) AS name WHERE to_regproc(name) IS NULL))",
            [quote(table), quote(sequence_name(table)), functions],
        )
        return bool(cursor.fetchone()[0])


def _storage_missing(alias: str) -> CheckMessage:
    return Error(
        f"Database {alias!r} has the table of leases without its sequence or its functions: no lease can be acquired.",
        hint="They come with the app's migrations: restore them along with the table, or migrate back and forth.",
        obj=alias,
        id="lockstep.E020",
    )
