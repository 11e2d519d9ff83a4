"""The database's clock, which alone decides what has expired, and the format of its times in messages."""

from datetime import datetime, timedelta
from typing import Any

from django.db.models import DateTimeField, DurationField, Func, Value
from django.db.models.functions import Now
from django.utils import timezone

__all__ = ["ClockTimestamp", "after", "before", "time_of_day"]


class ClockTimestamp(Func):
    """The current time, not the start of the transaction: PostgreSQL's ``clock_timestamp()``."""

    template = "clock_timestamp()"
    output_field = DateTimeField()

    def as_sqlite(self, compiler: Any, connection: Any, **context: object) -> Any:
        """Return SQLite's time, which is that of the statement."""
        return Now().as_sqlite(compiler, connection, **context)

    def as_mysql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """Return the time at which MySQL calls the function, with microseconds."""
        return super().as_sql(compiler, connection, template="SYSDATE(6)", **context)


def after(duration: timedelta) -> Any:
    """Return the expression for the moment this long from now."""
    return ClockTimestamp() + Value(duration, output_field=DurationField())


def before(duration: timedelta) -> Any:
    """Return the expression for the moment this long ago."""
    return ClockTimestamp() - Value(duration, output_field=DurationField())


def time_of_day(moment: datetime) -> str:
    """Return the time of day for a message, in the current time zone, as templates show it."""
    local = timezone.localtime(moment) if timezone.is_aware(moment) else moment
    return f"{local:%H:%M:%S}"
