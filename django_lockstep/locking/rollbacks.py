"""Knows of an instance's last write whether it was committed, is pending, or was undone.

Django has a hook for commits, ``on_commit``, and none for rollbacks. But a rollback of the transaction, or of a
savepoint of ``atomic()``, takes the callbacks that were registered since out of the connection's list, and a commit
takes all of them out of the front of the list, one by one, and calls them. So each write registers a callback. A
savepoint made by hand is unknown to the list: an execute wrapper of the connection sees its rollback.

Nothing is restored, as Django itself restores nothing: an instance in doubt is refused until it was read again.
"""

from __future__ import annotations

import re
import weakref
from typing import Any

from django.db import connections, models
from django.db.backends.base.base import BaseDatabaseWrapper

from django_lockstep.locking.transactions import commits_each_statement

_LAST_WRITE = "_versioned_last_write"
_ROLLBACK_TO = re.compile(r"\s*ROLLBACK\s+(WORK\s+|TRANSACTION\s+)?TO\b", re.IGNORECASE)


class Write:
    """The writes of a transaction between the same two savepoints: a callback of ``on_commit``.

    It does not refer to instances, so a long transaction keeps none alive. A copy of an instance shares it. Without a
    connection nothing can be known of the write.
    """

    def __init__(self, connection: BaseDatabaseWrapper | None = None) -> None:
        self._is_called = self.is_undone = False
        self._connection = None if connection is None else weakref.ref(connection)
        self._callbacks: list[Any] = []
        if connection is not None:
            self.savepoints_made: int = connection.savepoint_state
            # What on_commit() does, which refuses where autocommit is off.
            connection.run_on_commit.append((set(connection.savepoint_ids), self, False))  # type: ignore[arg-type]
            self._follow(connection.run_on_commit)

    def __call__(self) -> None:
        """Record the commit, unless a test calls the callbacks inside of its transaction."""
        connection = None if self._connection is None else self._connection()
        self._is_called = connection is not None and not connection.in_atomic_block

    def _follow(self, callbacks: list[Any]) -> None:
        self._callbacks, self._first = callbacks, callbacks[0]

    @property
    def is_committed(self) -> bool:
        """Whether it certainly was, also while another callback runs before this one, or after one that failed."""
        if self._connection is None:
            return False
        return self._is_called or not self._callbacks or self._callbacks[0] is not self._first

    @property
    def is_pending(self) -> bool:
        """Whether the transaction goes on, and no rollback has undone the write."""
        # Not connections[alias]: asynchronous code has another one than the thread that wrote for it.
        connection = None if self._connection is None else self._connection()
        if connection is None or self.is_undone:
            return False
        callbacks = connection.run_on_commit
        if callbacks is not self._callbacks:
            if not any(callback is self for _, callback, *_ in callbacks):
                return False
            self._follow(callbacks)  # a savepoint that was made later was rolled back
        return True

    def includes_now(self, connection: BaseDatabaseWrapper) -> bool:
        """Whether a write at this moment would be between the same savepoints."""
        is_same = connection.run_on_commit is self._callbacks and connection.savepoint_state == self.savepoints_made
        return is_same and not self.is_undone

    def __deepcopy__(self, memo: object) -> Write:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Write, ()  # another process cannot know more


class _SavepointWatch:
    """An execute wrapper that marks the writes which the rollback of a savepoint undoes.

    Django numbers savepoints in the order in which they are made.
    """

    def __init__(self) -> None:
        self._writes: weakref.WeakSet[Write] = weakref.WeakSet()
        self._last: Write | None = None

    def __call__(self, execute: Any, sql: Any, params: object, many: bool, context: object) -> Any:
        result = execute(sql, params, many, context)
        if isinstance(sql, str) and _ROLLBACK_TO.match(sql):
            name = re.search(r"s\d+_x(\d+)", sql)
            for write in self._writes:
                # One with another name, in raw SQL, may have been made at any time.
                if name is None or int(name[1]) <= write.savepoints_made:
                    write.is_undone = True
        return result

    def current_write(self, connection: BaseDatabaseWrapper) -> Write:
        """Return what a write at this moment belongs to."""
        if self._last is None or not self._last.includes_now(connection):
            self._last = Write(connection)
            self._writes.add(self._last)
        return self._last


def last_write(instance: models.Model) -> Write | None:
    """Return the last write of the instance in a transaction, which may be over."""
    return getattr(instance._state, _LAST_WRITE, None)


def set_last_write(instance: models.Model, write: Write | None) -> None:
    setattr(instance._state, _LAST_WRITE, write)


def record_write(instance: models.Model, using: str) -> None:
    """Record that the instance was written now; outside of transactions that is final."""
    connection = connections[using]
    if commits_each_statement(connection):
        set_last_write(instance, None)
        return
    watch = next((wrapper for wrapper in connection.execute_wrappers if isinstance(wrapper, _SavepointWatch)), None)
    if watch is None:
        # The first: a context manager of Django's takes its own wrapper from the end.
        connection.execute_wrappers.insert(0, watch := _SavepointWatch())
    set_last_write(instance, watch.current_write(connection))
