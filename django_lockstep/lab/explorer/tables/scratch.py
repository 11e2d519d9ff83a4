"""Scratch databases for races: created for one run from the project's migrations, and dropped after it.

Each run gets a fresh copy of a migrated, empty database, which is kept as a template. A copy takes a fifth of a second,
migrations take many; and no verdict depends on what an earlier run, perhaps a killed one, left behind, as it would if
runs shared one database. Databases are created as Django's test runner creates them, settings below ``TEST`` included.

Databases in use are locked: a session on the maintenance database holds an advisory lock on the name of each one for as
long as its process needs it. So a database whose name can be locked is unused, and is dropped: a copy of a process that
was killed, or a template of other migrations.
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

from django_lockstep.lab.explorer.effects.catalog import quote_name
from django_lockstep.lab.explorer.errors import NotExplorable
from django_lockstep.lab.explorer.tables.control_session import kept_sessions
from django_lockstep.lab.explorer.tables.databases import SCRATCH_PREFIX, is_scratch

_RUN = "_run_"
# Locks of the session: the server releases them when the process ends, however it does.
_LOCK = "SELECT pg_advisory_lock(hashtextextended(%s, 0))"
_TRY_LOCK = "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))"
_UNLOCK = "SELECT pg_advisory_unlock(hashtextextended(%s, 0))"
_OTHERS = "SELECT datname FROM pg_database WHERE starts_with(datname::text, %s) AND datname <> %s"
# A DROP DATABASE that is interrupted leaves the database invalid: it can only be dropped.
_IS_INVALID = "SELECT datconnlimit = -2 FROM pg_database WHERE datname = %s"
_RIGHT = "SELECT current_user, rolcreatedb OR rolsuper FROM pg_roles WHERE rolname = current_user"
_SETTINGS = ("AUTH_USER_MODEL", "DATABASE_ROUTERS", "DEFAULT_AUTO_FIELD", "INSTALLED_APPS", "LANGUAGE_CODE")
"""Settings that decide what migrations create."""


@contextmanager
def scratch_databases() -> Iterator[None]:
    """Redirect each alias of PostgreSQL to an empty database with the project's tables, in all threads of this process.

    Connections to any other database are refused inside the block. It is for processes that do nothing else: a web
    process would answer other requests from the scratch database, and its caches would keep keys from there.

    Raises `NotExplorable` if the role may not create databases, or if the migrations fail.
    """
    groups = _groups()
    # Connections are redirected, or refused, when they are opened: one that is open already would go on.
    connections.close_all()
    connection_created.connect(_refuse, weak=False)
    try:
        with ExitStack() as stack:
            for aliases in groups:
                (name,) = stack.enter_context(_copies(aliases, 1))
                stack.enter_context(_redirected(aliases, name))
            stack.enter_context(kept_sessions())
            yield
    finally:
        connection_created.disconnect(_refuse)


@contextmanager
def further_copies(number: int) -> Iterator[list[Mapping[str, str]]]:
    """Create so many further copies of the scratch databases in use; yields the names by alias of each.

    They are dropped at the end of the block, also while sessions are connected to them. Raises as `scratch_databases`
    does.
    """
    with ExitStack() as stack:
        copies = [(aliases, stack.enter_context(_copies(aliases, number))) for aliases in _groups()]
        yield [{alias: names[index] for aliases, names in copies for alias in aliases} for index in range(number)]


def enter_scratch(names: Mapping[str, str]) -> None:
    """Redirect the aliases to these scratch databases until this process ends, and refuse all others."""
    connections.close_all()
    for alias, name in names.items():
        for values in _names_of(alias):
            values["NAME"] = name
    connection_created.connect(_refuse, weak=False)


def _groups() -> list[list[str]]:
    """Return the aliases of PostgreSQL, grouped by database.

    The default comes first: data migrations of other databases may read it.
    """
    groups: dict[tuple[str, ...], list[str]] = {}
    for alias in sorted(connections, key=lambda alias: alias != DEFAULT_DB_ALIAS):
        target = connections[connections[alias].settings_dict["TEST"]["MIRROR"] or alias]
        identity = tuple(str(target.settings_dict[part]) for part in ("HOST", "PORT", "NAME"))
        if target.vendor == "postgresql":
            groups.setdefault(identity, []).append(alias)
    return list(groups.values())


def _refuse(sender: Any, connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
    if connection.alias != NO_DB_ALIAS and not is_scratch(connection):
        connection.close()
        raise NotExplorable(
            f"There is no scratch database for {connection.alias!r} ({connection.vendor}), and the project's own "
            "database is not used; --database ALIAS --yes-this-database-is-mine runs on the project's own databases."
        )


@contextmanager
def _copies(aliases: Sequence[str], number: int) -> Iterator[list[str]]:
    """Create so many copies of the template, and drop them at the end of the block; yields their names."""
    with ExitStack() as stack:
        names = []
        try:
            cursor = stack.enter_context(connections[aliases[0]]._nodb_cursor())
            _require_right(cursor)
            project = _project(connections[aliases[0]])
            template = f"{project}_{_migrations_digest(aliases[0])}"
            # Once: this session could lock the copies that it has made itself.
            _drop_unused(cursor, project, template=template)
            for _ in range(number):
                names.append(_create_copy(cursor, aliases, project=project, template=template))
                stack.callback(_drop, cursor, names[-1])
        except DatabaseError as error:
            raise NotExplorable(f"No scratch database could be created for {aliases[0]!r}: {error}") from error
        yield names


def _drop(cursor: Any, name: str) -> None:
    with suppress(Error):  # if the server is gone, the next run drops it
        # FORCE: sessions of actors that were interrupted may still be open.
        cursor.execute(f"DROP DATABASE IF EXISTS {quote_name(name)} WITH (FORCE)")


def _require_right(cursor: Any) -> None:
    cursor.execute(_RIGHT)
    role, may = cursor.fetchone()
    if not may:
        raise NotExplorable(
            f"Role {role!r} may not create databases, and so no scratch database: ALTER ROLE {role} CREATEDB, or name "
            "a database whose rows are not needed with --database ALIAS --yes-this-database-is-mine (or the setting "
            "LOCKSTEP_LAB_DISPOSABLE_DATABASES)."
        )


def _create_copy(cursor: Any, aliases: Sequence[str], *, project: str, template: str) -> str:
    """Return the name of a fresh copy of the template, which is created if it is missing."""
    # Locked until the copy is made, so that no other process creates the template too, or drops it.
    cursor.execute(_LOCK, [template])
    try:
        cursor.execute(_IS_INVALID, [template])
        is_invalid = cursor.fetchone()
        if is_invalid == (True,):
            _drop(cursor, template)
        if is_invalid != (False,):  # dropped now, or never made
            _create_template(cursor, aliases, project=project, template=template)
        name = _lock_new_name(cursor, project)
        cursor.execute(f"CREATE DATABASE {quote_name(name)} TEMPLATE {quote_name(template)}")
    finally:
        cursor.execute(_UNLOCK, [template])
    return name


def _create_template(cursor: Any, aliases: Sequence[str], *, project: str, template: str) -> None:
    """Migrate a new database, and only then rename it to the template: no template is half migrated."""
    name = _lock_new_name(cursor, project)
    with _redirected(aliases, name):
        # Before Django 6.0 it would read all rows by default.
        options: Any = {"serialize": False} if django.VERSION < (6,) else {}
        connections[aliases[0]].creation.create_test_db(verbosity=0, autoclobber=True, **options)
    # A template cannot be copied while a session is connected to it.
    cursor.execute(f"ALTER DATABASE {quote_name(name)} ALLOW_CONNECTIONS false")
    cursor.execute(f"ALTER DATABASE {quote_name(name)} RENAME TO {quote_name(template)}")


def _lock_new_name(cursor: Any, project: str) -> str:
    """Return a new database name, locked by this session."""
    name = f"{project}{_RUN}{secrets.token_hex(4)}"
    cursor.execute(_LOCK, [name])
    return name


def _drop_unused(cursor: Any, project: str, *, template: str) -> None:
    cursor.execute(_OTHERS, [f"{project}_", template])
    for (name,) in cursor.fetchall():
        cursor.execute(_TRY_LOCK, [name])
        if not cursor.fetchone()[0]:
            continue
        with suppress(DatabaseError):  # a session is connected to it
            cursor.execute(f"DROP DATABASE IF EXISTS {quote_name(name)}")
        cursor.execute(_UNLOCK, [name])


@contextmanager
def _redirected(aliases: Sequence[str], name: str) -> Iterator[None]:
    """Redirect the aliases to this database; as a test database too, so that backends do not create another."""
    originals: list[tuple[dict[str, Any], Any]] = []
    for alias in aliases:
        _disconnect(connections[alias])
        originals += [(values, values["NAME"]) for values in _names_of(alias)]
    try:
        for values, _ in originals:
            values["NAME"] = name
        yield
    finally:
        for alias in aliases:
            _disconnect(connections[alias])
        for values, before in originals:
            values["NAME"] = before


def _names_of(alias: str) -> tuple[dict[str, Any], ...]:
    """Return where the alias's name stands: create_test_db() takes the one below TEST, connections take the other."""
    values: dict[str, Any] = connections[alias].settings_dict
    return values, values["TEST"]


def _disconnect(connection: Any) -> None:
    connection.close()
    connection.close_pool()


# Names


def _project(connection: BaseDatabaseWrapper) -> str:
    """Return the prefix of this project's scratch databases' names, at most 46 characters."""
    name = str(connection.settings_dict["NAME"])
    if is_scratch(connection):
        return name.rpartition(_RUN)[0]
    readable = re.sub(r"[^a-z0-9_]", "", name.lower())[:20]
    return f"{SCRATCH_PREFIX}{readable}_{_digest(name, os.environ.get('DJANGO_SETTINGS_MODULE'))}"


def _migrations_digest(alias: str) -> str:
    """Return a digest that changes when migrating an empty database would have another result.

    Files are compared, not names: a migration under development keeps its name. Operations may come from other
    packages, whose files count too.
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
