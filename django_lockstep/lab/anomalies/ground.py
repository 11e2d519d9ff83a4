"""The one table that the anomalies are played on: made for it, and dropped after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.apps.registry import Apps
from django.db import DatabaseError, OperationalError, connections, models
from django.db.backends.base.base import BaseDatabaseWrapper

from django_lockstep.lab.anomalies.errors import AnomaliesError

__all__ = ["START", "Item", "X", "Y", "ground"]

X, Y = 1, 2
"""Primary keys of the two rows that are there from the start."""
START = {X: 10, Y: 20}
"""Their values."""

_MARK = "Made by manage.py anomalies, which drops it at its end"
_PATIENCE = "5s"
_END_SESSIONS = """
SELECT pg_terminate_backend(pid, 5000) FROM pg_locks
WHERE relation = to_regclass('{table}') AND pid <> pg_backend_pid()
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


class Item(models.Model):
    """A row with a value and a version, outside of the project's models as Django's own table of migrations is."""

    id = models.IntegerField(primary_key=True)
    value = models.IntegerField()
    version = models.IntegerField(default=1)

    class Meta:
        """A registry of its own: neither makemigrations nor a router hears of it."""

        apps = Apps()
        app_label = "lockstep_lab"
        db_table = "lockstep_lab_anomalies"
        db_table_comment = _MARK


@contextmanager
def ground(using: str) -> Iterator[Callable[[], None]]:
    """Make the table, and drop it at the end whatever happens; what a killed process left is removed first.

    Yields what to call between two explorations: it removes the dead rows of the last one.

    Raises `AnomaliesError` where the command is running on this database already, where a table of the name is not its
    own, and where the role may not make one.
    """
    # A connection of its own: it has to be able to drop the table whatever became of the others.
    wrapper = connections[using].copy()
    try:
        with _refusal_explained(using):
            _claim(wrapper)
        try:
            with _refusal_explained(using):
                _make(wrapper)
            yield lambda: _run(wrapper, f"VACUUM {Item._meta.db_table}")
        finally:
            with _refusal_explained(using):
                _drop_at_the_end(wrapper)
    finally:
        wrapper.close()


@contextmanager
def _refusal_explained(using: str) -> Iterator[None]:
    try:
        yield
    except DatabaseError as error:
        raise AnomaliesError(f"Database {using!r} does not let a table be made and dropped: {error}") from error


def _make(wrapper: BaseDatabaseWrapper) -> None:
    _drop(wrapper)
    with wrapper.schema_editor() as editor:
        editor.create_model(Item)
    # The server's plans, and with them what SERIALIZABLE notices, are not to change while schedules run.
    _run(wrapper, f"ALTER TABLE {Item._meta.db_table} SET (autovacuum_enabled = false)")


def _run(wrapper: BaseDatabaseWrapper, sql: str) -> None:
    with wrapper.cursor() as cursor:
        cursor.execute(sql)


def _claim(wrapper: BaseDatabaseWrapper) -> None:
    """Take the advisory lock that says whose table it is, until the connection is closed."""
    table = Item._meta.db_table
    with wrapper.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(hashtextextended(%s, 0)), to_regclass(%s)", [table, table])
        claimed, found = cursor.fetchone()
        if not claimed:
            raise AnomaliesError(f"Another process plays anomalies on database {wrapper.alias!r}")
        cursor.execute("SELECT obj_description(to_regclass(%s), 'pg_class')", [table])
        if found and cursor.fetchone()[0] != _MARK:
            raise AnomaliesError(
                f"Database {wrapper.alias!r} has a table {table} that is not this command's: rename it"
            )


def _drop_at_the_end(wrapper: BaseDatabaseWrapper) -> None:
    try:
        _drop(wrapper)
    except OperationalError:
        # The table is this process's alone: who still has it is an actor whose end an interrupt has prevented.
        _run(wrapper, _END_SESSIONS.format(table=Item._meta.db_table))
        _drop(wrapper)


def _drop(wrapper: BaseDatabaseWrapper) -> None:
    _run(wrapper, f"SET lock_timeout = '{_PATIENCE}'")
    _run(wrapper, f"DROP TABLE IF EXISTS {Item._meta.db_table}")
