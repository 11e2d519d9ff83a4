"""The database of a run: created for it with the requested durability, and dropped after it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
from django.db import DEFAULT_DB_ALIAS, connection, connections

from django_lockstep.lab.simulator.database import environment

_PATIENCE = 10.0
"""Seconds to wait until the server has reloaded its settings."""


@contextmanager
def scratch_database(*, durable: bool) -> Iterator[None]:
    """Create a database with all tables and use it for Django's default connection; drop it after the block.

    On the embedded server ``durable`` sets fsync, full_page_writes and synchronous_commit for the whole server; on
    another one only synchronous_commit, for the sessions of this run. Raises ``ImproperlyConfigured`` or
    ``DatabaseError`` where the server is not available.
    """
    value = "on" if durable else "off"
    # ALTER SYSTEM would change a server that is not ours.
    if os.environ.get("DATABASE_URL"):
        options = connection.settings_dict.setdefault("OPTIONS", {})
        options["options"] = f"{options.get('options', '')} -c synchronous_commit={value}".strip()
        connection.close()
    else:
        _set_for_server({"synchronous_commit": value, "fsync": value, "full_page_writes": value})
    name = connection.settings_dict["NAME"]
    # A database of its own, because tables are emptied; an earlier run's that was killed is dropped.
    connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
    try:
        yield
    finally:
        connection.creation.destroy_test_db(name, verbosity=0)


def _set_for_server(settings: Mapping[str, str]) -> None:
    with connection.cursor() as cursor:
        for name, value in settings.items():
            cursor.execute(f"ALTER SYSTEM SET {name} = {value}")
        cursor.execute("SELECT pg_reload_conf()")
    deadline = time.monotonic() + _PATIENCE
    # The reload is only announced by the function; without this wait, the first figures have the old settings.
    while any(_shown(name) != value for name, value in settings.items()) and time.monotonic() < deadline:
        connections[DEFAULT_DB_ALIAS].close()  # a new session has the new settings, once the server has


def _shown(setting: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting(%s)", [setting])
        return str(cursor.fetchone()[0])


def describe_machine() -> dict[str, Any]:
    """Return what the figures depend on: versions, processors, durability, and the machine's load."""
    from importlib.metadata import PackageNotFoundError, version

    def installed(package: str) -> str:
        try:
            return version(package)
        except PackageNotFoundError:
            return "not installed"

    packages = ("psycopg", "django-concurrency", "django-pglock")
    versions = {name: installed(name) for name in packages}
    return {**environment(DEFAULT_DB_ALIAS), **versions, "load before": round(os.getloadavg()[0], 1)}


def connect_alone() -> psycopg.Connection[Any]:
    """Connect as Django would, but with psycopg's own defaults, committing every statement."""
    params = connection.get_connection_params()
    names = ("host", "port", "user", "password", "dbname", "options")
    return psycopg.connect(**{name: params[name] for name in names if params.get(name)}, autocommit=True)
