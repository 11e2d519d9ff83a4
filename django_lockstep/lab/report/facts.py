"""What a report consists of: facts as the server tells them, no wording."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

__all__ = ["AdvisoryLock", "LockReport", "Session", "Wait"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Somebody who holds a lock or waits for one: a server process, or a prepared transaction without one.

    Whatever the server does not tell this role is None.
    """

    pid: int | None = None
    """The server process; None for a prepared transaction."""
    gid: str | None = None
    """The name of a prepared transaction; None for a server process."""
    application: str | None = None
    """``application_name`` as the client has set it."""
    user: str | None = None
    """The database role."""
    client: str | None = None
    """The client's address; None for a Unix socket."""
    backend: str | None = None
    """What kind of process: ``client backend``, ``autovacuum worker`` ..."""
    state: str | None = None
    """As in pg_stat_activity, ``idle in transaction`` for example, or ``prepared``; None if hidden or gone."""
    since: datetime | None = None
    """Since when it is in this state; for an idle one the end of its last statement."""
    seconds: float | None = None
    """How long that is, by the server's clock."""
    transaction_seconds: float | None = None
    """How long its transaction is open."""
    statement: str | None = None
    """What it runs, or ran last where it is idle; the server cuts it at track_activity_query_size."""
    hidden: bool = False
    """Whether the server hides its state and statement from this role."""

    @property
    def id(self) -> str:
        """A name that no other session of the report has."""
        return str(self.pid) if self.gid is None and self.pid is not None else f"prepared:{self.gid}"

    @property
    def is_idle(self) -> bool:
        """Whether it holds its locks without doing anything."""
        return self.state == "prepared" or (self.state or "").startswith("idle")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """One session that waits for a lock."""

    waiter: Session
    """Who waits, with the statement that does."""
    blockers: tuple[Session, ...]
    """For whom: those who hold the lock, and those who stand before the waiter in the queue for it."""
    kind: str
    """``row`` (or unique key), ``table``, ``advisory``, ``transaction``, otherwise PostgreSQL's name of the lock."""
    lock: str
    """Identifies the lock; waits for the same lock have the same."""
    mode: str | None
    """As in SQL, FOR UPDATE or ACCESS EXCLUSIVE for example; None for a row that the server does not name."""
    seconds: float
    """How long it has waited, by the server's clock."""
    table: str | None = None
    """The table's name, with its schema if that is not on the search path; None if unknown."""
    model: str | None = None
    """The label of the model that lives in the table; None if no installed one does."""
    pk: Any = None
    """The row's primary key, a tuple if it has several columns; None if unknown."""
    pk_unknown: str | None = None
    """Why the primary key of a row is unknown; None if it is known or there is no row."""
    key: int | tuple[int, int] | None = None
    """The advisory lock's key, in the form in which it was locked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvisoryLock:
    """An advisory lock that somebody holds."""

    key: int | tuple[int, int]
    """One bigint, or a pair of integers; PostgreSQL keeps the two apart."""
    mode: str
    """EXCLUSIVE, or SHARE if others may share it."""
    holders: tuple[Session, ...]
    """Who holds it."""
    waiters: tuple[Session, ...]
    """Who waits for it, the longest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockReport:
    """One look at a database."""

    database: str
    """The database's name on the server."""
    taken_at: datetime
    """When, by the server's clock."""
    waits: tuple[Wait, ...]
    """Every wait, the longest first."""
    advisory_locks: tuple[AdvisoryLock, ...]
    """Every advisory lock of the database, by key."""

    @property
    def sessions(self) -> dict[str, Session]:
        """Everybody who is mentioned, by `Session.id`."""
        parties = [party for wait in self.waits for party in (wait.waiter, *wait.blockers)]
        parties += [party for lock in self.advisory_locks for party in (*lock.holders, *lock.waiters)]
        return {party.id: party for party in parties}

    @property
    def limited(self) -> bool:
        """Whether the server hides something from this role that a member of pg_read_all_stats would see."""
        return any(session.hidden for session in self.sessions.values())
