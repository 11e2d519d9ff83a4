"""Which databases may be explored: PostgreSQL, rows that are not needed, by one explorer at a time."""

from __future__ import annotations

import sys
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.base.creation import TEST_DATABASE_PREFIX

from django_lockstep.lab import conf
from django_lockstep.lab.explorer.errors import NotExplorable

SCRATCH_PREFIX = "lockstep_scratch_"
"""Prefix of the names of the databases that the explorer creates and drops."""

_OTHERS = 3
"""Connections beside the actors': the exploring thread's, and the two of the explorer."""
# A lock of the session, not of a transaction: an exploration has many transactions.
_KEY = "hashtextextended('lockstep.lab.explorer', 0)"
_CLAIM = f"SELECT pg_try_advisory_lock({_KEY}), current_database()"
_RELEASE = f"SELECT pg_advisory_unlock({_KEY})"
_HOLDER = f"""
SELECT a.pid, a.application_name, to_char(a.backend_start, 'YYYY-MM-DD HH24:MI:SS TZ')
FROM pg_locks l JOIN pg_stat_activity a USING (pid)
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND (l.classid::bigint << 32) | l.objid::bigint = {_KEY}
"""


def is_scratch(connection: BaseDatabaseWrapper) -> bool:
    """Whether the explorer created the database, and will drop it."""
    return str(connection.settings_dict["NAME"]).startswith(SCRATCH_PREFIX)


def is_test_database(connection: BaseDatabaseWrapper) -> bool:
    """Whether Django's tests are running, and this is the database that was made for them.

    A name alone proves nothing: a project may call its own database ``test_shop``.
    """
    utils = sys.modules.get("django.test.utils")  # a test runner has imported it
    if utils is None or not hasattr(utils._TestState, "saved_data"):
        return False
    name, test_name = str(connection.settings_dict["NAME"]), connection.settings_dict["TEST"]["NAME"]
    # Copies for parallel runs have a suffix.
    return name.startswith(TEST_DATABASE_PREFIX) or bool(test_name and name.startswith(str(test_name)))


def is_forbidden(connection: BaseDatabaseWrapper) -> bool:
    """Whether the running test has not named the database, so that Django refuses to connect to it."""
    # Django has replaced the method by an object that fails, and knows the original.
    return hasattr(connection.connect, "wrapped")


def require_disposable(connection: BaseDatabaseWrapper) -> None:
    """Raise `NotExplorable` unless it is known that the rows of the connection's database are not needed."""
    alias = connection.alias
    if alias in conf.disposable_databases() or is_scratch(connection) or is_test_database(connection):
        return
    raise NotExplorable(
        f"Database {alias!r} ({connection.settings_dict['NAME']}) is neither a test database nor a scratch database, "
        "and exploring puts back every table that it writes, so that rows which other sessions commit in the meantime "
        "are lost. `manage.py explore` runs on a scratch database by default; if the rows of this one are not needed, "
        "confirm that: --database ALIAS --yes-this-database-is-mine, database_is_mine=True in Python, or the alias in "
        "the setting LOCKSTEP_LAB_DISPOSABLE_DATABASES."
    )


def claim(cursor: Any) -> None:
    """Lock the database for this session, until `release`. Raises `NotExplorable` where another explorer has it.

    An exclusive advisory lock of the session, taken without waiting: two explorers would put each other's tables back,
    and each would see the other's sessions block its actors.
    """
    claimed, name = cursor.execute(_CLAIM).fetchone()
    if not claimed:
        holder = "it has just ended, so try again"
        for pid, application, since in cursor.execute(_HOLDER).fetchall():
            holder = f"server process {pid} (application {application or 'without a name'}), since {since}"
        raise NotExplorable(f"Another explorer is running on database {name!r}: {holder}")


def release(cursor: Any) -> None:
    """Release the lock; a pooled session may live on."""
    cursor.execute(_RELEASE)


def require_committed_data(connection: BaseDatabaseWrapper) -> None:
    """Raise `NotExplorable` inside a transaction, and for other servers than PostgreSQL."""
    if connection.vendor != "postgresql":
        raise NotExplorable(f"The explorer needs PostgreSQL; database {connection.alias!r} is {connection.vendor}")
    if connection.in_atomic_block:
        raise NotExplorable(
            f"A transaction is open on database {connection.alias!r}, so that other connections would not see the rows "
            "of the set-up. In pytest use @pytest.mark.django_db(transaction=True), in Django's own tests "
            "TransactionTestCase."
        )


def require_connections(connection: BaseDatabaseWrapper, *, actors: int) -> None:
    """Raise `NotExplorable` if the database's pool has too few connections."""
    pool = connection.settings_dict.get("OPTIONS", {}).get("pool")
    if not pool:
        return
    options = pool if isinstance(pool, dict) else {}
    size, needed = options.get("max_size") or options.get("min_size", 4), actors + _OTHERS
    if size < needed:
        raise NotExplorable(
            f"The pool of database {connection.alias!r} has {size} connections; a race of {actors} actors needs "
            f"{needed}: one for each actor, the test's own, and two of the explorer. Give the pool a max_size of "
            f"{needed}, or the tests no pool."
        )
