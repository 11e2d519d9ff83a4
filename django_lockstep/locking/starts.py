"""Where versions begin that must never come back."""

from __future__ import annotations

from typing import Any

from django.db import models

__all__ = ["Microseconds"]


class Microseconds(models.Func):
    """The microseconds since 1970 on the database's clock.

    A row is changed far less than a million times a second, so that the versions of a row deleted before are all in
    the past. Below 2**53 until the year 2255, so that JavaScript reads them exactly.
    """

    output_field: models.BigIntegerField[int, int] = models.BigIntegerField()

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """Ask for the time of this row, not for that of the transaction's begin."""
        return "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint", []

    def as_mysql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """Ask for six decimals, of which there are none by default."""
        return "CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)", []

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """Take the second and a random number: SQLite's clock has milliseconds, in which much can happen."""
        return "(CAST((julianday('now') - 2440587.5) * 86400 AS INTEGER) * 1000000 + (random() & 1048575))", []
