"""The scratch table that the anomalies run on, created for them and dropped afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.apps.registry import Apps
from django.db import DatabaseError, OperationalError, connections, models
from django.db.backends.base.base import BaseDatabaseWrapper

from django_lockstep.lab.anomalies.errors import AnomaliesError

__all__ = ["START", "Item", "X", "Y", "scratch_table"]

X, Y = 1, 2
"""Primary keys of the two initial rows."""
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
    """A row with a value and a version; like Django's table of migrations it is outside of the project's models."""

    id = models.IntegerField(primary_key=True)
    value = models.IntegerField()
    version = models.IntegerField(default=1)

    class Meta:
        """A registry of its own, so that neither makemigrations nor database routers see the model."""

        apps = Apps()
        app_label = "lockstep_lab"
        db_table = "lockstep_lab_anomalies"
        db_table_comment = _MARK


@contextmanager
def scratch_table(using: str) -> Iterator[Callable[[], None]]:
    """Create the table, and drop it at the end in any case; a table left by a killed process is removed first.

    Yields a function to call between two explorations, which removes the dead rows of the last one.

    Raises `AnomaliesError` if the command is running on this database already, if a table with this name is not its
    own, and if the role may not create one.
    """
    # A separate connection, which can drop the table whatever happens to the others.
    wrapper = connections[using].copy()
    try:
        with _explain_refusal(using):
            _claim(wrapper)
        try:
            with _explain_refusal(using):
                _create(wrapper)
            yield lambda: _run(wrapper, f"VACUUM {Item._meta.db_table}")
        finally:
            with _explain_refusal(using):
                _drop_at_the_end(using)
    finally:
        wrapper.close()


@contextmanager
def _explain_refusal(using: str) -> Iterator[None]:
    try:
        yield
    except DatabaseError as error:
        raise AnomaliesError(f"Database {using!r} does not allow creating and dropping a table: {error}") from error


def _create(wrapper: BaseDatabaseWrapper) -> None:
    _drop(wrapper)
    with wrapper.schema_editor() as editor:
        editor.create_model(Item)
    # Autovacuum would change plans, and with them what SERIALIZABLE locks, while schedules run.
    _run(wrapper, f"ALTER TABLE {Item._meta.db_table} SET (autovacuum_enabled = false)")


def _run(wrapper: BaseDatabaseWrapper, sql: str) -> None:
    with wrapper.cursor() as cursor:
        cursor.execute(sql)


def _claim(wrapper: BaseDatabaseWrapper) -> None:
    """Take an exclusive advisory lock on the table's name, until the connection is closed."""
    table = Item._meta.db_table
    with wrapper.cursor() as cursor:
        # A lock of the session, because the table is created and dropped in transactions of their own.
        cursor.execute("SELECT pg_try_advisory_lock(hashtextextended(%s, 0)), to_regclass(%s)", [table, table])
        claimed, found = cursor.fetchone()
        if not claimed:
            raise AnomaliesError(f"Another process is running anomalies on database {wrapper.alias!r}")
        cursor.execute("SELECT obj_description(to_regclass(%s), 'pg_class')", [table])
        if found and cursor.fetchone()[0] != _MARK:
            raise AnomaliesError(
                f"Database {wrapper.alias!r} has a table {table} that this command has not created: rename it"
            )


def _drop_at_the_end(using: str) -> None:
    # Ctrl-C in the middle of a command leaves a connection that can send no other one: hence another connection.
    wrapper = connections[using].copy()
    try:
        _drop(wrapper)
    except OperationalError:
        # Only this process uses the table: a session that still does was interrupted.
        _run(wrapper, _END_SESSIONS.format(table=Item._meta.db_table))
        _drop(wrapper)
    finally:
        wrapper.close()


def _drop(wrapper: BaseDatabaseWrapper) -> None:
    # DROP TABLE needs ACCESS EXCLUSIVE: it would wait for any session that has used the table in an open transaction.
    _run(wrapper, f"SET lock_timeout = '{_PATIENCE}'")
    _run(wrapper, f"DROP TABLE IF EXISTS {Item._meta.db_table}")
