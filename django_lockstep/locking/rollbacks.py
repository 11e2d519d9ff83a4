"""Detects that a write was rolled back, and then restores the instance.

Django has a hook for commits, ``on_commit``, and none for rollbacks. Its list of callbacks shows them nevertheless: a
rollback, of the transaction or of a savepoint, replaces the list by one without the callbacks that were registered
since. So each write inside a transaction registers a callback (`TransactionOutcome`), and the next use of the instance
looks at it: still in the list (pending), called (committed), or neither (rolled back). The same list shows savepoints
that are made and rolled back by hand, and ``rollback()`` where autocommit is off.

The instance is checked before each of its writes, and when an attribute is read that a rollback may have undone
(`SettledAttribute`). While the list is the same object, the check is a comparison of two references.
"""

from __future__ import annotations

import enum
import functools
import re
import weakref
from typing import Any, Protocol

from django.db import connections, models
from django.db.backends.base.base import BaseDatabaseWrapper

__all__ = [
    "SettledAttribute",
    "TransactionOutcome",
    "current_outcome",
    "last_write",
    "note",
    "settle",
    "settle_on_access",
]

_LAST_WRITE = "_versioned_last_write"
_COMMITTED = "run_commit_hooks_on_set_autocommit_on"
"""Django's flag of a connection that ``commit()`` sets."""


class WriteStatus(enum.Enum):
    """The fate of a write."""

    PENDING = enum.auto()
    COMMITTED = enum.auto()
    ROLLED_BACK = enum.auto()


class TransactionOutcome:
    """The outcome of all writes between the same two savepoints of a transaction: an ``on_commit`` callback.

    It does not refer to instances, so a long transaction keeps none alive. A copy of an instance shares its outcomes.
    """

    __slots__ = ("_connection_log", "_status")

    def __init__(self, connection_log: _ConnectionLog) -> None:
        self._connection_log = connection_log
        self._status = WriteStatus.PENDING

    def __call__(self) -> None:
        """Note the commit; Django calls it."""
        self._status = WriteStatus.COMMITTED

    @property
    def status(self) -> WriteStatus:
        """The status as known now, without a query."""
        if self._status is WriteStatus.PENDING:
            self._connection_log.update()
        return self._status

    def decide(self, status: WriteStatus) -> None:
        """Note what became of the writes."""
        self._status = status


class _ConnectionLog:
    """The outcomes of one connection's open transaction."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self._connection = weakref.ref(connection)
        self._outcomes: dict[int, TransactionOutcome] = {}
        self._commit_flag: _CommitFlag | None = None
        self._follow(connection.run_on_commit)

    def current(self, connection: BaseDatabaseWrapper) -> TransactionOutcome:
        """Return the outcome for a write at this moment: the same for all writes between the same savepoints."""
        self.update()
        made = connection.savepoint_state
        outcome = self._outcomes.get(made)
        if outcome is None or outcome.status is not WriteStatus.PENDING:  # tests call callbacks before a commit
            outcome = self._outcomes[made] = TransactionOutcome(self)
            # Append directly: on_commit() knows neither savepoints made by hand nor transactions without atomic().
            callbacks: list[Any] = connection.run_on_commit
            callbacks.append((_Savepoints(connection), outcome, False))
            self._follow(callbacks)
            if not (connection.in_atomic_block and connection.commit_on_exit):
                self._commit_flag = _CommitFlag(getattr(connection, _COMMITTED))
                setattr(connection, _COMMITTED, self._commit_flag)
        return outcome

    def update(self) -> None:
        """Decide the outcomes that are no longer in Django's list, once for each list.

        After a commit Django empties the old list from its front as it runs the callbacks. A changed list therefore
        means a commit, also while another callback runs before ours or after one that failed. An unchanged list means a
        rollback.
        """
        connection = self._connection()
        callbacks = [] if connection is None else connection.run_on_commit
        if callbacks is not self._callbacks:
            self._compare(callbacks)
        if connection is not None and self._commit_flag is not None:
            self._notice_commit(connection)

    def _compare(self, callbacks: list[Any]) -> None:
        committed = not self._callbacks or self._callbacks[0] is not self._first
        kept = {callback for _, callback, *_ in callbacks if isinstance(callback, TransactionOutcome)}
        for outcome in self._outcomes.values():
            if outcome not in kept and outcome._status is WriteStatus.PENDING:
                outcome.decide(WriteStatus.COMMITTED if committed else WriteStatus.ROLLED_BACK)
        self._outcomes = {key: outcome for key, outcome in self._outcomes.items() if outcome in kept}
        self._follow(callbacks)

    def _notice_commit(self, connection: BaseDatabaseWrapper) -> None:
        """Decide the outcomes after a ``commit()`` without ``atomic()``, which leaves the list and sets a flag.

        If a ``rollback()`` happened as well before the check, the order is unknown, and the list has already marked all
        of them as rolled back: the instances then have too low a version, which is refused, and never one that may be
        reused.
        """
        if getattr(connection, _COMMITTED) is not self._commit_flag:
            for outcome in self._outcomes.values():
                outcome.decide(WriteStatus.COMMITTED)
            self._outcomes = {}
        if not self._outcomes:
            self._commit_flag = None

    def _follow(self, callbacks: list[Any]) -> None:
        self._callbacks = callbacks
        self._first = callbacks[0] if callbacks else None


class _Savepoints(set[str | None]):
    """The savepoints around a write: those that ``atomic()`` lists, and all that were made before it.

    Django numbers savepoints in order; rolling back to one undoes everything that was written after it.
    """

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        super().__init__(connection.savepoint_ids)
        self._made = connection.savepoint_state

    def __contains__(self, sid: object) -> bool:
        return super().__contains__(sid) or 0 < _number(str(sid)) <= self._made


@functools.lru_cache(maxsize=8)  # Django asks every callback about the same savepoint
def _number(sid: str) -> int:
    """Return the number in the name that Django gives to a savepoint, 0 for another name."""
    name = re.fullmatch(r"s\d+_x(\d+)", sid)
    return int(name[1]) if name else 0


class _CommitFlag(int):
    """Replaces the flag that ``commit()`` sets, with the same truth value: a commit overwrites it."""


_logs: weakref.WeakKeyDictionary[BaseDatabaseWrapper, _ConnectionLog] = weakref.WeakKeyDictionary()


def current_outcome(using: str) -> TransactionOutcome | None:
    """Return the outcome of a write made now; None outside a transaction."""
    connection = connections[using]
    if not connection.in_atomic_block and connection.get_autocommit():
        return None
    log = _logs.get(connection)
    if log is None:
        log = _logs[connection] = _ConnectionLog(connection)
    return log.current(connection)


class Write(Protocol):
    """One write, or several with the same outcome, that can be undone in an instance."""

    @property
    def earlier(self) -> Write | None:
        """The earlier write that was still pending when this one was made."""

    @property
    def outcome(self) -> TransactionOutcome:
        """Whether it was committed."""

    def take_back(self, instance: models.Model) -> None:
        """Restore the instance to its state before the write."""


def last_write(instance: models.Model) -> Any:
    """Return the instance's last pending write, or None."""
    settle(instance)
    return vars(instance._state).get(_LAST_WRITE)


def note(instance: models.Model, write: Write) -> None:
    """Record a write of the instance, after `last_write` or in its place."""
    setattr(instance._state, _LAST_WRITE, write)


def settle(instance: models.Model) -> None:
    """Undo in the instance those of its writes that were rolled back.

    A rollback always undoes the latest writes, so the search ends at the first pending one from the end.
    """
    write: Write | None = vars(instance._state).get(_LAST_WRITE)
    if write is None:
        return
    rolled_back = []
    while write is not None and (status := write.outcome.status) is not WriteStatus.PENDING:
        if status is WriteStatus.ROLLED_BACK:
            rolled_back.append(write)
        write = write.earlier
    # Before the restore, which reads attributes and would come here again.
    if write is None:
        delattr(instance._state, _LAST_WRITE)
    else:
        setattr(instance._state, _LAST_WRITE, write)
    for each in rolled_back:
        each.take_back(instance)


class SettledAttribute:
    """Settles the instance before an attribute is read; replaces the field's own descriptor."""

    def __init__(self, descriptor: Any, name: str) -> None:
        self._descriptor = descriptor
        self._name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self._descriptor.__get__(None, owner)
        values = instance.__dict__
        if _LAST_WRITE in values["_state"].__dict__:
            settle(instance)
        if self._name in values:
            return values[self._name]
        return self._descriptor.__get__(instance, owner)

    def __set__(self, instance: object, value: object) -> None:
        instance.__dict__[self._name] = value


class SettledDescriptor(SettledAttribute):
    """The same for fields with a descriptor of their own, such as foreign keys and files."""

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is not None:
            settle(instance)
        return self._descriptor.__get__(instance, owner)

    def __set__(self, instance: object, value: object) -> None:
        self._descriptor.__set__(instance, value)


def settle_on_access(model: type[models.Model], name: str) -> None:
    """Make reading the attribute settle the instance first.

    The version field has it from the start. Other columns get it with their first guarded write inside a transaction,
    because it makes each read as slow as a foreign key's.
    """
    if isinstance(vars(model).get(name), SettledAttribute):
        return
    inherited = next(vars(kind)[name] for kind in model.__mro__ if name in vars(kind))
    if not isinstance(inherited, SettledAttribute):
        kind = SettledDescriptor if hasattr(inherited, "__set__") else SettledAttribute
        inherited = kind(inherited, name)
    setattr(model, name, inherited)
