"""What the simulator requires of the database, and what it asks the server."""

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

from django_lockstep.lab.conf import simulate_migrates
from django_lockstep.lab.simulator.errors import SimulationError


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


def require_connections(alias: str, number: int) -> None:
    """Raise `SimulationError` if the server certainly has no room for so many more connections.

    Sessions of other roles may be hidden, and a pooler lets many clients share few sessions: a worker that still
    cannot connect reports that when it starts.
    """
    with connections[alias].cursor() as cursor:
        cursor.execute(_CONNECTIONS)
        pid, allowed, reserved, taken = cursor.fetchone()
    free = max(0, allowed - reserved - taken)
    # A pooler shows the backend's own pid only to SQL; the connection reports another one.
    behind_a_pooler = connections[alias].connection.info.backend_pid != pid
    if number > free and not behind_a_pooler:
        raise SimulationError(
            f"{number} workers need a connection each, but database {alias!r} has {free} left: max_connections is "
            f"{allowed}, {reserved} of them are reserved, {taken} taken. Use fewer workers or raise max_connections."
        )


_CONNECTIONS = """\
SELECT pg_backend_pid(), current_setting('max_connections')::int,
       CASE WHEN rolsuper THEN 0 ELSE current_setting('superuser_reserved_connections')::int
            + coalesce(current_setting('reserved_connections', true)::int, 0) END,
       (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')
FROM pg_roles WHERE rolname = current_user"""


def require_tables(alias: str, apps: Iterable[str]) -> None:
    """Apply missing migrations where ``LOCKSTEP_LAB_MIGRATES`` allows it: of all apps, any may refer to users.

    Raises `SimulationError` if one of these apps still misses one.
    """
    executor, may_migrate = MigrationExecutor(connections[alias]), simulate_migrates()
    # leaf_nodes(None) are those of all apps.
    names = [None] if may_migrate else sorted(set(apps))
    targets = [node for app in names for node in executor.loader.graph.leaf_nodes(app)]
    missing = [f"{migration.app_label}.{migration.name}" for migration, _ in executor.migration_plan(targets)]
    if missing and not may_migrate:
        raise SimulationError(
            f"Database {alias!r} lacks migrations: {', '.join(missing)}. Run manage.py migrate --database {alias} "
            "first, or set LOCKSTEP_LAB_MIGRATES = True."
        )
    if missing:
        try:
            call_command("migrate", database=alias, verbosity=0, interactive=False)
        except DatabaseError as error:
            raise SimulationError(f"Database {alias!r} could not be migrated: {error}") from error


def environment(alias: str) -> dict[str, Any]:
    """Return what the figures depend on: versions and settings, in plain values."""
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

    A worker that was killed leaves its server process behind, which first finishes its statement. After that
    it writes nothing more. Behind a pooler nothing is ended: it closes itself what its clients left unfinished, and a
    session may have their name while it belongs to another client, which has none of its own.
    """
    if prefixes:
        connection = connections[alias]
        with connection.cursor() as cursor:
            cursor.execute(
                # By prefix, since workers number their sessions; with a timeout, as a statement may still be running.
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
                "WHERE EXISTS (SELECT FROM unnest(%s::text[]) AS prefix WHERE starts_with(application_name, prefix)) "
                # A pooler tells its clients of another process than the one that serves them.
                "AND pid <> pg_backend_pid() AND pg_backend_pid() = %s",
                [list(prefixes), connection.connection.info.backend_pid],
            )
