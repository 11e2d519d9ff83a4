"""System checks: guarantees that a project's databases do not give to leases."""

from __future__ import annotations

from collections.abc import Sequence

from django.core import checks
from django.core.checks import CheckMessage, Error, Tags, register
from django.db import connections, router

from django_lockstep.leases.database import lease_model
from django_lockstep.leases.operations import quoted_names


@register(Tags.models)
def check_guards(app_configs: object, **kwargs: object) -> list[CheckMessage]:
    """Warn of a database without lease guards."""
    alias = router.db_for_write(lease_model())
    connection = connections[alias]
    # "unknown" is Django's dummy backend of a project without databases.
    if connection.vendor in ("postgresql", "unknown"):
        return []
    return [
        checks.Warning(
            f"Leases on database {alias!r} ({connection.vendor}) have no guard: a paused holder can still write "
            "after a takeover, waiters have no queue, and statements have no time limit.",
            hint="Use PostgreSQL, or write with update_if_token(), which refuses lower tokens.",
            obj=alias,
            id="lockstep.W020",
        )
    ]


@register(Tags.database)
def check_storage(app_configs: object, databases: Sequence[str] | None = None, **kwargs: object) -> list[CheckMessage]:
    """Check that each table of leases has its sequence and its functions."""
    model = lease_model()
    table = model._meta.db_table
    return [
        Error(
            f"Database {alias!r} has the table of leases without its sequence or its functions: no lease can be "
            "acquired.",
            hint="The app's migrations create them: restore them with the table, or migrate the app to zero and back.",
            obj=alias,
            id="lockstep.E020",
        )
        for alias in databases or ()
        if connections[alias].vendor == "postgresql"
        and router.allow_migrate_model(alias, model)
        and _lacks_storage(alias, table)
    ]


def _lacks_storage(alias: str, table: str) -> bool:
    names = quoted_names(table, connections[alias].ops.quote_name)
    with connections[alias].cursor() as cursor:
        cursor.execute(
            "SELECT to_regclass(%s) IS NOT NULL AND (to_regclass(%s) IS NULL"
            " OR EXISTS (SELECT FROM unnest(%s::text[]) AS name WHERE to_regproc(name) IS NULL))",
            [names["table"], names["sequence"], [names["acquire"], names["release"]]],
        )
        return bool(cursor.fetchone()[0])
