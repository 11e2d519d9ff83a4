"""Guards: what makes check-outs and writes of the same rows wait for each other, until their transactions end.

The granularities are two, as in the hierarchy of Gray and others ("Granularity of Locks and Degrees of Consistency in a
Shared Data Base", 1976): a record is guarded together with the intention on its table.

=====================  ==========  ============
who                    the table   the record
=====================  ==========  ============
check-out of a table   exclusive
check-out of a record  shared      exclusive
write of a record      shared      shared
insert of a record     shared
write of many records  exclusive
=====================  ==========  ============

Guards are PostgreSQL's advisory locks of the transaction: they cost a write nothing that lasts, and exist for rows that
nobody has ever checked out. One statement takes them all, in the order of their keys, so that two callers that take
theirs at once never deadlock. What is read after it is as the last owner of the guard left it: at READ COMMITTED each
statement sees what was committed before it. Other databases have no guards; where they let one transaction write at a
time, as SQLite does, nothing is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from django.db import NotSupportedError, connections

from django_lockstep.editing.targets import Target

__all__ = ["GUARD_PREFIX", "guard_check_out", "guard_writes"]

GUARD_PREFIX = "lockstep.editing:"
"""Begins what the keys of the guards are hashed from, so that other users of advisory locks are not met."""

MANY = 100
"""From so many records of a table on, a write guards the table: the server's room for locks is limited."""

# The keys are distinct and in order before the first lock is taken: the inner SELECT is run to its end.
_SQL = """
SELECT current_setting('transaction_isolation'), {settings}
       CASE WHEN guard.exclusive THEN pg_advisory_xact_lock(guard.key)::text
            ELSE pg_advisory_xact_lock_shared(guard.key)::text END
FROM (SELECT hashtextextended(wanted.name, 0) AS key, bool_or(wanted.exclusive) AS exclusive
      FROM unnest(%s::text[], %s::boolean[]) AS wanted (name, exclusive)
      GROUP BY 1 ORDER BY 1 OFFSET 0) AS guard
"""


def guard_check_out(targets: Iterable[Target], *, using: str) -> None:
    """Wait until nobody writes or checks out any of the targets, and keep others waiting. Needs a transaction.

    Raises ``NotSupportedError`` above READ COMMITTED.
    """
    wanted = dict.fromkeys(targets, True)
    for target in list(wanted):
        wanted.setdefault(target.whole_table(), False)
    _take(wanted, using=using)


def guard_writes(targets: Iterable[Target], *, whole_tables: bool, settings: Mapping[str, str], using: str) -> None:
    """Wait until nobody checks out any of the targets, and keep check-outs waiting. Needs a transaction.

    A table among them stands for all of its records where ``whole_tables``, otherwise for new ones. The ``settings``
    are PostgreSQL parameters for the rest of the transaction, set along the way. Raises ``NotSupportedError`` above
    READ COMMITTED.
    """
    wanted = dict.fromkeys(targets, False)
    tables = {target.whole_table() for target in wanted}
    if whole_tables or len(wanted) >= MANY:
        wanted = dict.fromkeys(tables, True)
    _take({**dict.fromkeys(tables, False), **wanted}, using=using, settings=settings)


def _take(wanted: dict[Target, bool], *, using: str, settings: Mapping[str, str] | None = None) -> None:
    connection = connections[using]
    if connection.vendor != "postgresql":
        return
    names = [f"{GUARD_PREFIX}{target.name}" for target in wanted]
    with connection.cursor() as cursor:
        parameters = [part for setting in (settings or {}).items() for part in setting]
        columns = "set_config(%s, %s, true), " * (len(parameters) // 2)
        cursor.execute(_SQL.format(settings=columns), [*parameters, names, list(wanted.values())])
        isolation = cursor.fetchone()[0]
    if isolation != "read committed":
        # The snapshot is older than the guard: what was committed in between could not be seen.
        raise NotSupportedError(f"Edit locks are decided at READ COMMITTED; this transaction is {isolation.upper()}")
