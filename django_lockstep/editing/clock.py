"""The database's clock, which alone decides what has expired, and the format of its times in messages."""

from datetime import datetime, timedelta
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import DateTimeField, DurationField, Func, Value
from django.db.models.expressions import CombinedExpression
from django.db.models.functions import Now
from django.db.models.sql.compiler import SQLCompiler
from django.utils import timezone
from django.utils.formats import date_format


class ClockTimestamp(Func):
    """The current time, not the start of the transaction: PostgreSQL's ``clock_timestamp()``."""

    template = "clock_timestamp()"
    output_field = DateTimeField()

    def as_sqlite(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: object
    ) -> tuple[str, tuple[str | int, ...]]:
        """Return SQLite's time, which is that of the statement."""
        return Now().as_sqlite(compiler, connection, **context)

    def as_mysql(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: Any
    ) -> tuple[str, list[Any] | tuple[Any, ...]]:
        """Return the time at which MySQL calls the function, with microseconds."""
        return super().as_sql(compiler, connection, template="SYSDATE(6)", **context)


def from_now(duration: timedelta) -> CombinedExpression:
    """Return the expression for the moment this long from now; a negative duration is a moment ago."""
    return ClockTimestamp() + Value(duration, output_field=DurationField())


def time_with_day(moment: datetime) -> str:
    """Return the day and the time, in the current time zone and language, for messages and pages."""
    return date_format(timezone.localtime(moment) if timezone.is_aware(moment) else moment, "SHORT_DATETIME_FORMAT")
