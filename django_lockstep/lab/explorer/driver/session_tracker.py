"""Finds sessions that the explorer does not control: of the driver without Django, asynchronous ones, other processes.

Checked once in an exploration by one process, and after each run of a worker. A session that is open is in
``pg_stat_activity``. One that has ended is counted in ``pg_stat_database``, to which a session reports before it leaves
``pg_stat_activity`` (PostgreSQL 15 and later: shared memory, no messages), so that one of the two, asked in this order,
knows it.
"""

from __future__ import annotations

from typing import Any

__all__ = ["SessionTracker"]

_OPEN = """
SELECT pid FROM pg_stat_activity
WHERE datname = current_database() AND usesysid IS NOT NULL AND leader_pid IS NULL
  AND coalesce(backend_type, 'client backend') = 'client backend'
  AND (client_addr = inet_client_addr()) IS NOT FALSE
"""
"""Client sessions from this host, as far as the address tells: sessions through a socket have none. No parallel
workers."""
_COUNTED = "SELECT sessions FROM pg_stat_database WHERE datname = current_database()"
_SINCE = 150_000
"""The server's version before which the counter is up to half a second late."""


class SessionTracker:
    """Tells sessions that Django has opened from others, on one database."""

    def __init__(self, cursor: Any, *, pooled: bool) -> None:
        self._cursor = cursor
        self._counts = cursor.connection.info.server_version >= _SINCE
        self._pooled = pooled
        self.mark_known()

    def mark_known(self) -> None:
        """Take all current sessions as known."""
        self._known, self._begun = self._look()
        self._opened = 0

    def note_opened(self, pid: int) -> None:
        """Note a session that Django has opened, in any thread."""
        self._known.add(pid)
        self._opened += 1

    def untracked(self) -> tuple[int, int]:
        """Return how many unknown sessions are open, and how many have ended; the latter is not certain.

        A session that was too busy to report its start is counted later than it was opened.
        """
        if self._pooled:
            return 0, 0  # a pool opens sessions by itself
        found, count = self._look()
        return len(found - self._known), max(0, count - self._begun - self._opened)

    def _look(self) -> tuple[set[int], int]:
        found = {pid for (pid,) in self._cursor.execute(_OPEN).fetchall()}
        return found, self._cursor.execute(_COUNTED).fetchone()[0] if self._counts else 0
