"""Advisory locks that make check-outs and writes of the same rows wait for each other, until their transactions end.

There are two granularities, as in the hierarchy of Gray and others ("Granularity of Locks and Degrees of Consistency in
a Shared Data Base", 1976): a record is locked together with an intention lock on its table.

=====================  ==========  ============
operation              the table   the record
=====================  ==========  ============
check-out of a table   exclusive
check-out of a record  shared      exclusive
write of a record      shared      shared
insert of a record     shared
write of many records  exclusive
=====================  ==========  ============

They are PostgreSQL's transaction-level advisory locks: they write nothing, and work for rows that were never checked
out. One statement takes them all, in the order of their keys, so that two callers never deadlock. Later statements see
what the previous owner of the lock committed: at READ COMMITTED each statement has its own snapshot. Other databases
have no such locks; they are not needed where only one transaction writes at a time, as in SQLite.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from django.db import NotSupportedError, connections

from django_lockstep.editing.targets import Target

LOCK_PREFIX = "lockstep.editing:"
"""Prefix of the hashed names, so that the keys do not collide with other advisory locks."""

MANY = 100
"""From this many records on, a write locks the whole table: the server's lock table is limited."""

# OFFSET 0 makes the inner SELECT run to its end: keys are distinct and sorted before the first lock is taken.
_SQL = """
SELECT current_setting('transaction_isolation'), {settings}
       CASE WHEN locks.exclusive THEN pg_advisory_xact_lock(locks.key)::text
            ELSE pg_advisory_xact_lock_shared(locks.key)::text END
FROM (SELECT hashtextextended(names.name, 0) AS key, bool_or(names.exclusive) AS exclusive
      FROM unnest(%s::text[], %s::boolean[]) AS names (name, exclusive)
      GROUP BY 1 ORDER BY 1 OFFSET 0) AS locks
"""


def lock_for_check_out(targets: Iterable[Target], *, using: str) -> None:
    """Wait for writes and check-outs of the targets, and make later ones wait. Needs a transaction.

    Raises ``NotSupportedError`` above READ COMMITTED.
    """
    exclusive = dict.fromkeys(targets, True)
    for target in list(exclusive):
        exclusive.setdefault(Target(target.model), False)
    _acquire(exclusive, using=using)


def lock_for_writes(targets: Iterable[Target], *, whole_tables: bool, settings: Mapping[str, str], using: str) -> None:
    """Wait for check-outs of the targets, and make later check-outs wait. Needs a transaction.

    A table among them stands for all its records with ``whole_tables``, otherwise for new records. ``settings`` are
    PostgreSQL parameters for the rest of the transaction, set by the same statement. Raises ``NotSupportedError`` above
    READ COMMITTED.
    """
    exclusive = dict.fromkeys(targets, False)
    tables = {Target(target.model) for target in exclusive}
    if whole_tables or len(exclusive) >= MANY:
        exclusive = dict.fromkeys(tables, True)
    _acquire({**dict.fromkeys(tables, False), **exclusive}, using=using, settings=settings)


def _acquire(exclusive: dict[Target, bool], *, using: str, settings: Mapping[str, str] | None = None) -> None:
    """Lock each target, exclusive or shared, and set the settings."""
    connection = connections[using]
    if connection.vendor != "postgresql":
        return
    names = [f"{LOCK_PREFIX}{target.name}" for target in exclusive]
    with connection.cursor() as cursor:
        parameters = [part for setting in (settings or {}).items() for part in setting]
        columns = "set_config(%s, %s, true), " * (len(parameters) // 2)
        cursor.execute(_SQL.format(settings=columns), [*parameters, names, list(exclusive.values())])
        isolation = cursor.fetchone()[0]
    if isolation != "read committed":
        # The snapshot is older than the lock: changes committed in between would be invisible.
        raise NotSupportedError(
            f"Edit locks need READ COMMITTED; this transaction is {isolation.upper()}: run it at READ COMMITTED"
        )
