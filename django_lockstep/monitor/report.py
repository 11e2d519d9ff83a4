"""The data of a report, as the server returns it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A session that holds a lock or waits for one: a server process, or a prepared transaction, which has none.

    What the server does not show to this role is None.
    """

    pid: int | None = None
    """The server process; None for a prepared transaction."""
    application: str | None = None
    """``application_name`` as set by the client."""
    user: str | None = None
    """The database role."""
    client: str | None = None
    """The client's address; None for a Unix socket."""
    started: datetime | None = None
    """Since when the process is there: another one may get its pid later."""
    backend: str | None = None
    """The type of the process: ``client backend``, ``autovacuum worker`` ..."""
    state: str | None = None
    """As in pg_stat_activity, for example ``idle in transaction``, or ``prepared``; None if hidden or gone."""
    since: datetime | None = None
    """Since when it is in this state; for an idle one the end of its last statement."""
    seconds: float | None = None
    """Seconds since then, by the server's clock."""
    transaction_seconds: float | None = None
    """Seconds since its transaction began."""
    statement: str | None = None
    """Its current statement, or the last one if it is idle; cut off at track_activity_query_size."""
    hidden: bool = False
    """Whether the server hides its state and statement from this role."""

    @property
    def id(self) -> str:
        """An identifier that is unique in the report."""
        return "prepared" if self.pid is None else str(self.pid)

    @property
    def is_idle(self) -> bool:
        """Whether it holds its locks without running a statement."""
        return self.state == "prepared" or (self.state or "").startswith("idle")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """One session that waits for a lock."""

    waiter: Session
    """The session that waits, with its statement."""
    blockers: tuple[Session, ...]
    """The sessions that hold the lock, and those before the waiter in the queue for it."""
    kind: str
    """``row`` (or unique key), ``table``, ``advisory``, ``transaction``, or else PostgreSQL's lock type."""
    lock: str
    """Identifies the lock: waits for the same lock have the same value."""
    mode: str | None
    """As in SQL, for example FOR UPDATE or ACCESS EXCLUSIVE; None for a row that the server does not name."""
    seconds: float
    """How long it has waited, by the server's clock."""
    table: str | None = None
    """The table's name, with its schema if that is not on the search path; None if unknown."""
    model: str | None = None
    """The label of the model with this table; None if no installed model has it."""
    pk: Any = None
    """The row's primary key, a tuple if it has several columns; None if unknown."""
    pk_unknown: str | None = None
    """Why the primary key of a row is unknown; None if it is known or there is no row."""
    key: int | tuple[int, int] | None = None
    """The advisory lock's key, in the form in which it was given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvisoryLock:
    """An advisory lock that is held."""

    key: int | tuple[int, int]
    """One bigint, or a pair of integers; PostgreSQL keeps the two apart."""
    mode: str
    """EXCLUSIVE, or SHARE if others may share it."""
    holders: tuple[Session, ...]
    """The sessions that hold it."""
    waiters: tuple[Session, ...]
    """The sessions that wait for it, the longest wait first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockReport:
    """The locks of a database at one moment."""

    database: str
    """The database's name on the server."""
    taken_at: datetime
    """The time, by the server's clock."""
    waits: tuple[Wait, ...]
    """Every wait, the longest first."""
    advisory_locks: tuple[AdvisoryLock, ...]
    """Every advisory lock of the database, by key."""

    @property
    def sessions(self) -> dict[str, Session]:
        """All sessions of the report, by `Session.id`."""
        sessions = [session for wait in self.waits for session in (wait.waiter, *wait.blockers)]
        sessions += [session for lock in self.advisory_locks for session in (*lock.holders, *lock.waiters)]
        return {session.id: session for session in sessions}

    @property
    def limited(self) -> bool:
        """Whether the server hides from this role what a member of pg_read_all_stats would see."""
        return any(session.hidden for session in self.sessions.values())
