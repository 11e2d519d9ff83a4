"""Knows of an instance's last write whether it was committed, is pending, or may have been undone.

Django has a hook for commits, ``on_commit``, and none for rollbacks. But every rollback, of the transaction or to a
savepoint, also to one made by hand, replaces the connection's list of callbacks, while a commit takes the callbacks out
of the front of the list and calls them. So each write registers a callback: as long as the list is the same object,
nothing was undone since.

Nothing is restored, as Django itself restores nothing: an instance in doubt is refused until it was read again.
"""

from __future__ import annotations

import weakref
from typing import Any

from django.db import connections, models
from django.db.backends.base.base import BaseDatabaseWrapper

from django_lockstep.locking.transactions import commits_each_statement

__all__ = ["Write", "last_write", "record_write", "set_last_write"]

_LAST_WRITE = "_versioned_last_write"


class Write:
    """The writes of a transaction between the same two savepoints: a callback of ``on_commit``.

    It does not refer to instances, so a long transaction keeps none alive. A copy of an instance shares it. Without a
    connection nothing can be known of the write.
    """

    def __init__(self, using: str, connection: BaseDatabaseWrapper | None = None) -> None:
        self.using = using
        self._is_called = False
        self._connection = None if connection is None else weakref.ref(connection)
        self._callbacks: list[Any] = []
        if connection is not None:
            connection.on_commit(self)
            self._callbacks = connection.run_on_commit
            self._first = self._callbacks[0]
            self._savepoints = list(connection.savepoint_ids)

    def __call__(self) -> None:
        """Record the commit, unless a test calls the callbacks inside of its transaction."""
        self._is_called = not connections[self.using].in_atomic_block

    @property
    def is_committed(self) -> bool:
        """Whether it certainly was, also while another callback runs before this one, or after one that failed."""
        if self._connection is None:
            return False
        return self._is_called or not self._callbacks or self._callbacks[0] is not self._first

    @property
    def is_pending(self) -> bool:
        """Whether the transaction goes on, without any rollback since the write."""
        # Not connections[using]: asynchronous code has another one than the thread that wrote for it.
        connection = None if self._connection is None else self._connection()
        return connection is not None and connection.run_on_commit is self._callbacks

    def includes_now(self, connection: BaseDatabaseWrapper) -> bool:
        """Whether a write at this moment would be between the same savepoints."""
        return connection.run_on_commit is self._callbacks and connection.savepoint_ids == self._savepoints

    def __deepcopy__(self, memo: object) -> Write:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Write, (self.using,)  # another process cannot know more


_last_writes: weakref.WeakKeyDictionary[BaseDatabaseWrapper, Write] = weakref.WeakKeyDictionary()
"""The last one of each connection, shared by all instances that are written between the same savepoints."""


def last_write(instance: models.Model) -> Write | None:
    """Return the last write of the instance in a transaction, which may be over."""
    write: Write | None = getattr(instance._state, _LAST_WRITE, None)
    return write


def set_last_write(instance: models.Model, write: Write | None) -> None:
    setattr(instance._state, _LAST_WRITE, write)


def record_write(instance: models.Model, using: str) -> None:
    """Record that the instance was written now; outside of transactions that is final."""
    set_last_write(instance, _current_write(using))


def _current_write(using: str) -> Write | None:
    connection = connections[using]
    if commits_each_statement(connection):
        return None
    if not connection.in_atomic_block:
        return Write(using)  # autocommit is off, and on_commit() refuses
    write = _last_writes.get(connection)
    if write is None or not write.includes_now(connection):
        write = _last_writes[connection] = Write(using, connection)
    return write
