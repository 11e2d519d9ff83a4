"""What the simulator asks of the database itself."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Sequence
from typing import Any

import django
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.db import DatabaseError, connections
from django.db.migrations.executor import MigrationExecutor

from accounts.lab.conf import simulate_migrates
from accounts.lab.simulator.errors import SimulationError

__all__ = ["end_sessions", "environment", "require_row_locks", "require_tables"]


def require_row_locks(alias: str) -> None:
    """Raise `SimulationError` unless this database is a PostgreSQL that answers."""
    connection = connections[alias]
    if connection.vendor != "postgresql":
        raise SimulationError(
            f"Database {alias!r} runs on {connection.settings_dict['ENGINE']} ({connection.display_name}). "
            "The simulation needs real row locks, and they need PostgreSQL: set DATABASE_URL or DATABASES accordingly."
        )
    try:
        connection.ensure_connection()
    except (DatabaseError, ImproperlyConfigured) as error:
        raise SimulationError(f"Database {alias!r} cannot be reached: {error}") from error


def require_tables(alias: str, apps: Iterable[str]) -> None:
    """Apply missing migrations where ``ACCOUNTS_SIMULATE_MIGRATES`` allows it.

    Raises `SimulationError` if one of these apps still misses one.
    """
    if not (missing := _unapplied(alias, apps)):
        return
    if not simulate_migrates():
        raise SimulationError(
            f"Database {alias!r} misses migrations: {', '.join(missing)}. Run manage.py migrate --database {alias} "
            "first, or set ACCOUNTS_SIMULATE_MIGRATES = True."
        )
    try:
        call_command("migrate", database=alias, verbosity=0, interactive=False)
    except DatabaseError as error:
        raise SimulationError(f"Database {alias!r} could not be migrated: {error}") from error


def _unapplied(alias: str, apps: Iterable[str]) -> list[str]:
    executor = MigrationExecutor(connections[alias])
    targets = [node for app in sorted(set(apps)) for node in executor.loader.graph.leaf_nodes(app)]
    return [f"{migration.app_label}.{migration.name}" for migration, _ in executor.migration_plan(targets)]


def environment(alias: str) -> dict[str, Any]:
    """Return what figures depend on, in plain values."""
    with connections[alias].cursor() as cursor:
        cursor.execute(
            "SELECT current_setting('server_version'), current_setting('default_transaction_isolation'), "
            "current_setting('synchronous_commit'), current_setting('fsync')"
        )
        version, isolation, synchronous_commit, fsync = cursor.fetchone()
    return {
        "database": f"PostgreSQL {version.partition(' ')[0]}",
        "isolation": isolation,
        "synchronous_commit": synchronous_commit,
        "fsync": fsync,
        "django": django.get_version(),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
    }


def end_sessions(alias: str, prefixes: Sequence[str]) -> None:
    """End the sessions whose application names begin so, and wait until they are gone, at most 5 seconds for each.

    A worker that was killed leaves its server process behind, which first finishes its statement. Afterwards nothing
    is written any more.
    """
    if prefixes:
        with connections[alias].cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
                "WHERE EXISTS (SELECT FROM unnest(%s::text[]) AS prefix WHERE starts_with(application_name, prefix))",
                [list(prefixes)],
            )
