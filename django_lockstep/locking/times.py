"""Times as Django's cursors load them, in a tenth of the time.

psycopg has its loader of ``timestamptz`` in C, but Django's, which puts a time into the zone of the settings, builds on
the one in Python. That takes apart the text with a regular expression, and asks the session for its zone and style with
every result: longer than all the rest of a row.
"""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from typing import Any

from django.db.backends.postgresql.psycopg_any import register_tzloader
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.postgres import types

__all__ = ["load_times_in"]

_TIMESTAMPTZ = types["timestamptz"].oid


def load_times_in(timezone: tzinfo | None, cursor: Any) -> None:
    """Let the cursor load times as Django's own cursors do: aware ones in this zone, or without one where it is None.

    Values that Python has no time for, such as ``infinity``, raise what they raise there.
    """
    register_tzloader(timezone, cursor)
    if timezone is UTC:
        slow = cursor.adapters.get_loader(_TIMESTAMPTZ, Loader.format)
        cursor.adapters.register_loader("timestamptz", type("UtcLoader", (_UtcLoader,), {"slow": slow}))


class _UtcLoader(Loader):
    """Loads the times of sessions in UTC; everything else is left to the ``slow`` one."""

    slow: type[Loader]

    def load(self, data: Buffer) -> datetime:
        """Return the time."""
        try:
            at = datetime.fromisoformat(str(data, "ascii"))
        except ValueError:  # after the year 9999, before 1, infinite, or in another DateStyle
            return self._slowly(data)
        return at if at.tzinfo is UTC else self._slowly(data)

    def _slowly(self, data: Buffer) -> datetime:
        at: datetime = self.slow(self.oid, self.connection).load(data)
        return at
