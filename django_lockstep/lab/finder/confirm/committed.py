"""Tests that commit: what a `TestCase` keeps in a transaction of its own, other sessions could not see."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import ExitStack, contextmanager, suppress
from typing import Any
from unittest import mock

from django.db import connections
from django.test import TestCase, TransactionTestCase

from django_lockstep.lab.explorer.tables.control_session import ControlSession, catalog_of, kept_sessions
from django_lockstep.lab.explorer.tables.databases import is_forbidden, is_test_database, require_disposable
from django_lockstep.lab.explorer.tables.saved_tables import SavedTables


class DatabaseCopy:
    """A copy of all tables and sequences of databases, in temporary tables until it is closed.

    Raises `NotExplorable` for a database that was not made for tests.
    """

    def __init__(self, aliases: Iterable[str]) -> None:
        self._tables: list[SavedTables] = []
        self._new: list[Mapping[str, Set[str]]] = []
        # Also left on an interrupt: open sessions would keep the test database from being dropped.
        with ExitStack() as sessions:
            for alias in aliases:
                require_disposable(connections[alias])
                session = ControlSession(alias)
                sessions.callback(session.close)
                self._tables.append(SavedTables(session, catalog_of(session), steady=False))
                self._tables[-1].save_all()
                self._new.append({})
            self._sessions = sessions.pop_all()

    def restore(self) -> None:
        """Put everything back. Raises `ExplorerError` where another session holds a lock on a table."""
        for tables in self._tables:
            tables.put_back()

    def note_new(self) -> None:
        """Note the keys of the rows that were not there when it was copied: `restore_later` does not keep these."""
        self._new = [tables.new_keys() for tables in self._tables]

    def restore_later(self) -> None:
        """Put everything back, but keep rows that are new since `note_new`; raises as `restore` does."""
        for tables, noted in zip(self._tables, self._new, strict=True):
            tables.put_back_beside({name: new - noted.get(name, set()) for name, new in tables.new_keys().items()})

    def close(self) -> None:
        self._tables.clear()
        self._sessions.close()


def copied_databases() -> list[str]:
    """Return the databases of PostgreSQL that were made for the tests and that the running one may use; no mirrors."""
    databases = ((alias, connections[alias]) for alias in connections if _is_copied(alias))
    return [alias for alias, connection in databases if is_test_database(connection) and not is_forbidden(connection)]


def _is_copied(alias: str) -> bool:
    connection = connections[alias]
    return connection.vendor == "postgresql" and not connection.settings_dict["TEST"]["MIRROR"]


@contextmanager
def committed_tests() -> Iterator[Callable[[], None]]:
    """Have every test of Django's run without a transaction around it.

    Copies of the databases stand where `TestCase` has a transaction, for a class and for a test, and where a
    `TransactionTestCase` empties all tables: afterwards the rows are there that were there before. Within, setting up a
    test raises `NotExplorable` on a database that was not made for tests.

    Yields what closes the copies of a test that was interrupted, for which nothing is torn down, and all sessions that
    are kept: the test databases cannot be dropped before.
    """
    # For what is running: of a class and of a test, and of what was interrupted before it was torn down.
    copies: list[DatabaseCopy] = []
    original: Any = vars(TransactionTestCase)["_fixture_setup"]

    def enter(cls: Any) -> DatabaseCopy:
        copies.append(DatabaseCopy(filter(_is_copied, cls._databases_names(include_mirrors=False))))
        return copies[-1]

    def leave(copy: DatabaseCopy) -> None:
        try:
            copy.restore()
        finally:
            copy.close()
            with suppress(ValueError):  # after an interrupt all are closed
                copies.remove(copy)

    sessions = ExitStack()
    sessions.enter_context(kept_sessions())

    def close() -> None:
        while copies:
            copies.pop().close()
        sessions.close()

    def set_up(cls: Any) -> None:
        copy = enter(cls)

        def tear_down(*test: object) -> None:
            del cls._fixture_teardown
            leave(copy)

        # On the class itself: projects replace Django's, too, by something quicker.
        cls._fixture_teardown = staticmethod(tear_down)
        try:
            original.__func__(cls)
        except BaseException:  # then nothing is torn down
            tear_down()
            raise

    with (
        mock.patch.object(TestCase, "_enter_atomics", classmethod(enter)),
        mock.patch.object(TestCase, "_rollback_atomics", classmethod(lambda cls, copy: leave(copy))),
        mock.patch.object(TransactionTestCase, "_fixture_setup", classmethod(set_up)),
    ):
        try:
            yield close
        finally:
            close()
