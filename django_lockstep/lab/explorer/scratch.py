"""Databases to race on that hold nobody's rows: made for a run from the project's migrations, and dropped after it.

Each run gets a fresh copy of a migrated, empty database that is kept as a template. A copy takes a fifth of a second
where migrations take many; and no verdict depends on what an earlier run, perhaps a killed one, left behind, as it
would if runs shared one database. All is made in the way in which Django's test runner makes its databases, settings
below ``TEST`` included.

What is in use is locked: a session on the maintenance database has an advisory lock on the name of each database for as
long as its process needs it. So a name that can be locked is nobody's, and is dropped: copies of processes that were
killed, and templates of other migrations.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import django
from django.apps import apps
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, DatabaseError, Error, connections
from django.db.backends.base.base import NO_DB_ALIAS, BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.db.migrations.loader import MigrationLoader

from django_lockstep.lab.explorer.copies import quote_name
from django_lockstep.lab.explorer.databases import SCRATCH_PREFIX, is_scratch
from django_lockstep.lab.explorer.errors import NotExplorable
from django_lockstep.lab.explorer.idle_pool import close_idle_sessions

__all__ = ["scratch_databases"]

_LOCK = "SELECT pg_advisory_lock(hashtextextended(%s, 0))"
_TRY_LOCK = "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))"
_UNLOCK = "SELECT pg_advisory_unlock(hashtextextended(%s, 0))"
_OTHERS = "SELECT datname FROM pg_database WHERE starts_with(datname::text, %s) AND datname <> %s"
_RIGHT = "SELECT current_user, rolcreatedb OR rolsuper FROM pg_roles WHERE rolname = current_user"
_SETTINGS = ("AUTH_USER_MODEL", "DATABASE_ROUTERS", "DEFAULT_AUTO_FIELD", "INSTALLED_APPS", "LANGUAGE_CODE")
"""Settings that decide on what migrations make."""


@contextmanager
def scratch_databases() -> Iterator[None]:
    """Let each alias of PostgreSQL mean an empty database with the project's tables, in all threads of this process.

    Connections to any other database are refused inside the block, which is for processes that do nothing else: a
    web process would answer other requests from the scratch database, and its caches would keep keys from there.

    Raises `NotExplorable` where the role may not make databases, or the migrations fail.
    """
    groups = _groups()
    connections.close_all()
    connection_created.connect(_refuse, weak=False)
    try:
        with ExitStack() as stack:
            for aliases in groups:
                stack.enter_context(_scratch(aliases))
            yield
    finally:
        connection_created.disconnect(_refuse)


def _groups() -> list[list[str]]:
    """Return the aliases of PostgreSQL, those of one database together.

    The default comes first: data migrations of others may read it.
    """
    found: dict[tuple[str, ...], list[str]] = {}
    for alias in sorted(connections, key=lambda alias: alias != DEFAULT_DB_ALIAS):
        target = connections[connections[alias].settings_dict["TEST"]["MIRROR"] or alias]
        identity = tuple(str(target.settings_dict[part]) for part in ("HOST", "PORT", "NAME"))
        if target.vendor == "postgresql":
            found.setdefault(identity, []).append(alias)
    return list(found.values())


def _refuse(sender: Any, connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
    if connection.alias != NO_DB_ALIAS and not is_scratch(connection):
        connection.close()
        raise NotExplorable(
            f"There is no scratch database for {connection.alias!r} ({connection.vendor}), and the project's own is "
            "left alone; --database ALIAS --yes-this-database-is-mine races on the project's own databases."
        )


@contextmanager
def _scratch(aliases: Sequence[str]) -> Iterator[None]:
    with ExitStack() as stack:
        try:
            cursor = stack.enter_context(connections[aliases[0]]._nodb_cursor())
            _require_right(cursor)
            name = _copied(cursor, aliases)
        except DatabaseError as error:
            raise NotExplorable(f"No scratch database could be made for {aliases[0]!r}: {error}") from error
        stack.callback(_drop, cursor, name)
        stack.enter_context(_pointed(aliases, name))
        yield


def _drop(cursor: Any, name: str) -> None:
    with suppress(Error):  # where the server is gone, the next run drops it
        cursor.execute(f"DROP DATABASE IF EXISTS {quote_name(name)} WITH (FORCE)")


def _require_right(cursor: Any) -> None:
    cursor.execute(_RIGHT)
    role, may = cursor.fetchone()
    if not may:
        raise NotExplorable(
            f"Role {role!r} may not create databases, and so no scratch database: ALTER ROLE {role} CREATEDB, or name "
            "a database whose rows nobody needs with --database ALIAS --yes-this-database-is-mine (or the setting "
            "LOCKSTEP_LAB_DISPOSABLE_DATABASES)."
        )


def _copied(cursor: Any, aliases: Sequence[str]) -> str:
    """Return the name of a fresh copy of the template, which is made where it is missing."""
    project = _project(connections[aliases[0]])
    template = f"{project}_{_state(aliases[0])}"
    _drop_unused(cursor, project, template=template)
    # Until the copy is made, no other process may make the template as well, or drop it.
    cursor.execute(_LOCK, [template])
    try:
        cursor.execute("SELECT FROM pg_database WHERE datname = %s", [template])
        if not cursor.rowcount:
            _make(cursor, aliases, project=project, template=template)
        name = _claimed_name(cursor, project)
        cursor.execute(f"CREATE DATABASE {quote_name(name)} TEMPLATE {quote_name(template)}")
    finally:
        cursor.execute(_UNLOCK, [template])
    return name


def _make(cursor: Any, aliases: Sequence[str], *, project: str, template: str) -> None:
    """Migrate a new database, and only then give it the template's name: there is none that is half migrated."""
    name = _claimed_name(cursor, project)
    with _pointed(aliases, name):
        connections[aliases[0]].creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
    # A template cannot be copied while somebody is connected to it.
    cursor.execute(f"ALTER DATABASE {quote_name(name)} ALLOW_CONNECTIONS false")
    cursor.execute(f"ALTER DATABASE {quote_name(name)} RENAME TO {quote_name(template)}")


def _claimed_name(cursor: Any, project: str) -> str:
    """Return a new name, locked for this session."""
    name = f"{project}_run_{secrets.token_hex(4)}"
    cursor.execute(_LOCK, [name])
    return name


def _drop_unused(cursor: Any, project: str, *, template: str) -> None:
    cursor.execute(_OTHERS, [f"{project}_", template])
    for (name,) in cursor.fetchall():
        cursor.execute(_TRY_LOCK, [name])
        if not cursor.fetchone()[0]:
            continue
        with suppress(DatabaseError):  # somebody looks at what is left of it
            cursor.execute(f"DROP DATABASE IF EXISTS {quote_name(name)}")
        cursor.execute(_UNLOCK, [name])


@contextmanager
def _pointed(aliases: Sequence[str], name: str) -> Iterator[None]:
    """Let the aliases mean this database: it is a test database to Django, so that backends do not make it."""
    given: list[tuple[dict[str, Any], Any]] = []
    for alias in aliases:
        _disconnect(connections[alias])
        values: dict[str, Any] = connections[alias].settings_dict
        given += [(values, values["NAME"]), (values["TEST"], values["TEST"]["NAME"])]
    try:
        for values, _ in given:
            values["NAME"] = name
        yield
    finally:
        close_idle_sessions()
        for alias in aliases:
            _disconnect(connections[alias])
        for values, before in given:
            values["NAME"] = before


def _disconnect(connection: Any) -> None:
    connection.close()
    connection.close_pool()


# Names


def _project(connection: BaseDatabaseWrapper) -> str:
    """Return what begins the names of all scratch databases of this project's database, at most 46 characters."""
    name = str(connection.settings_dict["NAME"])
    readable = re.sub(r"[^a-z0-9_]", "", name.lower())[:20]
    return f"{SCRATCH_PREFIX}{readable}_{_digest(name, os.environ.get('DJANGO_SETTINGS_MODULE'))}"


def _state(alias: str) -> str:
    """Return what changes when migrating an empty database would come to something else.

    Files are compared, not names: while a migration is being written its name stays. Operations may be of other
    packages, which change as well.
    """
    loader = MigrationLoader(None)
    migrations = loader.disk_migrations.values()
    modules = {migration.__module__ for migration in migrations}
    modules |= {type(operation).__module__ for migration in migrations for operation in migration.operations}
    test: Mapping[str, Any] = connections[alias].settings_dict["TEST"]
    unmigrated = loader.unmigrated_apps if test["MIGRATE"] is not False else apps.app_configs
    modules |= {model.__module__ for label in unmigrated for model in apps.get_app_config(label).get_models()}
    sources = [(name, Path(file).read_bytes()) for name in sorted(modules) if (file := sys.modules[name].__file__)]
    chosen = [getattr(settings, name) for name in _SETTINGS]
    tests = {key: value for key, value in test.items() if key != "NAME"}
    return _digest(alias, django.VERSION, tests, chosen, sources)


def _digest(*values: Any) -> str:
    return hashlib.sha256(repr(values).encode()).hexdigest()[:8]
