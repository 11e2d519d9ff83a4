"""Which transaction a statement would be in without the one that the test runs in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.transaction import Atomic
from psycopg import IsolationLevel

from django_lockstep.lab.explorer.effects.sql import isolation_level_set

__all__ = ["Transactions"]

_LEVELS = {
    # In PostgreSQL the same as the next.
    IsolationLevel.READ_UNCOMMITTED: "read committed",
    IsolationLevel.READ_COMMITTED: "read committed",
    IsolationLevel.REPEATABLE_READ: "repeatable read",
    IsolationLevel.SERIALIZABLE: "serializable",
}


class Transactions:
    """Numbers the transactions of connections, as production has them.

    `TestCase` opens two blocks of its own around a test; the outermost block inside of them is production's
    transaction. Which two of these are the same cannot be seen in what a connection holds, for a decorator's block is
    one object in all calls, so that their beginnings are counted.
    """

    def __init__(self) -> None:
        self._begun: WeakKeyDictionary[BaseDatabaseWrapper, int] = WeakKeyDictionary()
        self._set_levels: WeakKeyDictionary[BaseDatabaseWrapper, tuple[int | None, str]] = WeakKeyDictionary()
        self._defaults: WeakKeyDictionary[Any, str] = WeakKeyDictionary()

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count the blocks that begin."""
        original: Any = Atomic.__enter__

        def entered(block: Atomic) -> None:
            original(block)
            connection = connections[block.using or DEFAULT_DB_ALIAS]
            if _own_blocks(connection) == [block]:
                self._begun[connection] = self._begun.get(connection, 0) + 1

        Atomic.__enter__ = entered  # type: ignore[method-assign]
        try:
            yield
        finally:
            Atomic.__enter__ = original  # type: ignore[method-assign]

    def current(self, connection: BaseDatabaseWrapper) -> int | None:
        """Return the number of the transaction that is open; None with autocommit."""
        blocks = connection.atomic_blocks
        is_open = bool(_own_blocks(connection)) if blocks else not connection.autocommit
        return self._begun.get(connection, 0) if is_open else None

    def note_statement(self, connection: BaseDatabaseWrapper, sql: str) -> None:
        """Note the isolation level that the statement may set for its transaction."""
        if sql[:4].upper() == "SET " and (level := isolation_level_set(sql)):
            self._set_levels[connection] = (self.current(connection), level)

    def isolation(self, connection: BaseDatabaseWrapper) -> str:
        """Return the level of the open transaction."""
        at, level = self._set_levels.get(connection, (None, ""))
        # SET TRANSACTION is over with its transaction.
        if level and at == self.current(connection):
            return level
        driver: Any = connection.connection
        chosen = driver.isolation_level
        return _LEVELS[IsolationLevel(chosen)] if chosen is not None else self._default(driver)

    def _default(self, driver: Any) -> str:
        if driver not in self._defaults:
            # Past the cursors: a test that counts statements does not count this one.
            value = driver.pgconn.exec_(b"SHOW default_transaction_isolation").get_value(0, 0)
            self._defaults[driver] = value.decode() if value else "read committed"
        return self._defaults[driver]


def _own_blocks(connection: BaseDatabaseWrapper) -> list[Atomic]:
    """Return the blocks that are not a `TestCase`'s."""
    blocks: list[Any] = connection.atomic_blocks
    return [block for block in blocks if not block._from_testcase]
