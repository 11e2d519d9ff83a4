"""Transactions at a chosen isolation level, and questions about the open one."""

from collections.abc import Iterator
from typing import Literal

from django.db import DEFAULT_DB_ALIAS, NotSupportedError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.transaction import TransactionManagementError, atomic

from django_lockstep.errors import translated_errors
from django_lockstep.locking.decorating import block

IsolationLevel = Literal["read committed", "repeatable read", "serializable"]
_LEVELS = ("read committed", "repeatable read", "serializable")


@block
def isolated_transaction(
    *,
    isolation_level: IsolationLevel | None = None,
    read_only: bool = False,
    deferrable: bool = False,
    using: str | None = None,
) -> Iterator[None]:
    """Run the block as one transaction with these characteristics (PostgreSQL's ``SET TRANSACTION``).

    The session's defaults apply again after the transaction. A serializable block must be run again when it raises
    `SerializationFailure`, which COMMIT may do too: put `retry_on_conflict` around the function that contains it.
    ``deferrable`` is for serializable, read-only blocks: they wait for a safe snapshot and then never fail.

    Raises ``TransactionManagementError`` inside an open transaction, whose level can no longer change (``TestCase``
    opens one; use ``TransactionTestCase`` or ``django_db(transaction=True)``), ``ValueError`` for an unknown level,
    ``NotSupportedError`` on other databases than PostgreSQL.
    """
    connection = connections[using or DEFAULT_DB_ALIAS]
    if isolation_level is not None and isolation_level not in _LEVELS:
        raise ValueError(f"isolation_level must be one of {', '.join(_LEVELS)}, not {isolation_level!r}")
    level = [f"ISOLATION LEVEL {isolation_level.upper()}"] if isolation_level else []
    characteristics = ", ".join([*level, *["READ ONLY"] * read_only, *["DEFERRABLE"] * deferrable])
    if connection.in_atomic_block:
        raise TransactionManagementError(
            f"A transaction is open on database {connection.alias!r}: its isolation level can no longer be chosen"
        )
    if characteristics and connection.vendor != "postgresql":
        raise NotSupportedError(
            f"isolated_transaction() sets characteristics on PostgreSQL only, not on {connection.vendor}"
        )
    # translated_errors() is outside atomic(), because COMMIT can raise a serialization failure too.
    with translated_errors(), atomic(using=connection.alias):
        if characteristics:
            with connection.cursor() as cursor:
                # The transaction's first statement: after the snapshot is taken, PostgreSQL refuses it.
                cursor.execute(f"SET TRANSACTION {characteristics}")
        yield


def has_autocommit(connection: BaseDatabaseWrapper) -> bool:
    """Whether statements outside of ``atomic()`` commit by themselves; does not connect."""
    is_connected = connection.connection is not None
    return connection.autocommit if is_connected else bool(connection.settings_dict["AUTOCOMMIT"])


def commits_each_statement(connection: BaseDatabaseWrapper) -> bool:
    """Whether the next statement will be a transaction of its own."""
    return not connection.in_atomic_block and has_autocommit(connection)


def in_own_atomic(connection: BaseDatabaseWrapper) -> bool:
    """Whether a transaction is open other than the one that a ``TestCase`` opens around a test."""
    return not all(map(_is_of_testcase, connection.atomic_blocks))


def is_of_testcase(connection: BaseDatabaseWrapper) -> bool:
    """Whether the open transaction is the one that a ``TestCase`` opens around a test."""
    return any(map(_is_of_testcase, connection.atomic_blocks))


def _is_of_testcase(block: object) -> bool:
    return bool(getattr(block, "_from_testcase", False))
