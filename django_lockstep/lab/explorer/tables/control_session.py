"""The explorer's own two sessions on a database, and its catalog, which is kept for the next exploration.

One asks which actors wait, and puts tables back; the other one, opened when it is needed, holds a snapshot.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg import Error as DriverError
from psycopg.pq import TransactionStatus

from django_lockstep.lab.explorer.effects.catalog import Catalog
from django_lockstep.lab.explorer.errors import NotExplorable

_VERSIONED = ("pg_attrdef", "pg_constraint", "pg_policy", "pg_proc", "pg_rewrite", "pg_trigger")
# Objects from this OID on are not the server's own (FirstNormalObjectId in its sources).
_VERSIONS = ", ".join(
    f"(SELECT sum(hashtextextended(concat_ws(' ', oid, xmin), 0)) FROM {table} WHERE oid >= 16384)"
    for table in _VERSIONED
)
_SCHEMA = f"""
SELECT current_schemas(false)::text,
       (SELECT sum(hashtextextended(concat_ws(' ', oid, relname, relkind, relnamespace, relhassubclass, relchecks), 0))
        FROM pg_class WHERE oid >= 16384 AND relpersistence <> 't'),
       (SELECT sum(hashtextextended(concat_ws(' ', attrelid, attnum, a.xmin), 0))
        FROM pg_attribute a JOIN pg_class c ON c.oid = attrelid
        WHERE attrelid >= 16384 AND attnum > 0 AND relpersistence <> 't'),
       (SELECT sum(hashtextextended(concat_ws(' ', oid, xmin), 0)) FROM pg_type WHERE oid >= 16384
        AND typnamespace <> pg_my_temp_schema() AND NOT pg_is_other_temp_schema(typnamespace)), {_VERSIONS}
"""
"""A fingerprint that changes with every table, column, constraint, index, trigger, rule, policy, type and function.

Not of temporary tables: the copies that other sessions have of tables come and go. Nor of whole rows of pg_class: they
contain statistics, which change all the time.
"""
_WITHOUT_LIMITS = """
SELECT set_config(name, '0', false) FROM pg_settings WHERE name IN (
    'idle_in_transaction_session_timeout', 'idle_session_timeout', 'statement_timeout', 'transaction_timeout')
"""
_OLDEST = 150_000
# The right by ``GRANT SET ON PARAMETER session_replication_role TO role``.
_RIGHTS = """
SELECT has_parameter_privilege('session_replication_role', 'SET'),
       current_setting('max_prepared_transactions')::int > 0, pg_backend_pid()
"""
_INTERRUPTED = (TransactionStatus.ACTIVE, TransactionStatus.INERROR)


_Drivers = Iterable[Any]
_kept: list[dict[Hashable, list[_Drivers]]] = []
"""For each block of `kept_sessions`, by database, the driver's connections of sessions that have been closed."""


@contextmanager
def kept_sessions() -> Iterator[None]:
    """Keep sessions that are closed in this block for the next ones on the same database, as a pool does: reset.

    Opening them is a third of what a short exploration takes. A database can be dropped only behind the block.
    """
    _kept.append({})
    try:
        yield
    finally:
        _close(chain.from_iterable(chain.from_iterable(_kept.pop().values())))


class ControlSession:
    """The two sessions, until `close`."""

    def __init__(self, alias: str) -> None:
        # The database, and the way to connect to it.
        self.key = alias, repr(connections[alias].get_connection_params())
        # A copy: the thread's own connection may be inside a transaction, closed, or replaced by the code under test.
        self._wrapper: BaseDatabaseWrapper = connections[alias].copy()
        self.pooled = "pool" in self._wrapper.settings_dict["OPTIONS"]
        self._opened: list[BaseDatabaseWrapper] = []
        drivers = _take(self.key)
        try:
            for driver in drivers or (None,):
                self._open(driver)
            self._read_rights()
        except BaseException:
            self._end()
            _close(drivers)
            raise

    def _open(self, kept: Any = None) -> Any:
        """Open one of the sessions, or take one that was kept, and return the driver's connection."""
        wrapper: Any = self._wrapper.copy()
        if kept is not None:  # all else as if it were new: Django connects to one of a pool so, too
            wrapper.get_new_connection = lambda params: kept
        _connect(wrapper)
        self._opened.append(wrapper)  # not before: Ctrl-C may end the attempt
        return wrapper.connection

    @property
    def driver(self) -> Any:
        """The driver's connection that asks and writes."""
        return self._opened[0].connection

    def _read_rights(self) -> None:
        """Note whether the session may put rows back without triggers.

        Raises `NotExplorable` for an older server, and behind a pooler, where the session is not the one that the
        driver believes to have.
        """
        # What is counted of a session can be had at once since this version, and rights can be granted one by one.
        if (version := self.driver.info.server_version) < _OLDEST:
            raise NotExplorable(
                f"Database {self._wrapper.alias!r} is PostgreSQL {version // 10_000}; the explorer needs "
                f"{_OLDEST // 10_000} or newer"
            )
        self.skips_triggers, self.prepares, pid = self.driver.execute(_RIGHTS).fetchone()
        if pid != self.driver.info.backend_pid:
            raise NotExplorable(
                f"Database {self._wrapper.alias!r} is reached through a connection pooler, so that the server cannot "
                "be asked which session waits for which; the explorer needs the server's own address"
            )

    def query(self, sql: str, *params: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a statement."""
        # The driver's own cursor: twice as fast as Django's, whose features are not needed here.
        rows: list[tuple[Any, ...]] = self.driver.cursor().execute(sql.encode(), params or None).fetchall()
        return rows

    @property
    def snapshot_holder(self) -> Any:
        """The driver's connection that may hold a snapshot."""
        return self._opened[1].connection if self._opened[1:] else self._open()

    def end_interrupted(self) -> None:
        """End the statements in which Ctrl-C has interrupted the driver, and their transactions."""
        for wrapper in self._opened:
            # Ctrl-C in the driver's own code ends its generator, and nothing takes the result any more. This waits for
            # the result, and discards it.
            if wrapper.connection.info.transaction_status in _INTERRUPTED:
                wrapper.connection.pgconn.exec_(b"ROLLBACK")

    def close(self) -> None:
        """End the sessions; a pool keeps its own without temporary tables, `kept_sessions` as if they were new."""
        drivers = [wrapper.connection for wrapper in self._opened]
        with suppress(DriverError):  # the server may be gone, or Ctrl-C has interrupted a statement
            if self.pooled:
                self.driver.execute("DISCARD TEMP")
            elif _kept:
                for driver in drivers:
                    driver.execute("DISCARD ALL")
                _kept[-1].setdefault(self.key, []).append(drivers)
                for wrapper in self._opened:
                    wrapper.connection = None
        self._end()

    def _end(self) -> None:
        for wrapper in self._opened:
            wrapper.close()


def _connect(wrapper: BaseDatabaseWrapper) -> None:
    wrapper.ensure_connection()
    # While other processes explore, both stand idle for as long as that takes, one of them inside a transaction.
    wrapper.connection.execute(_WITHOUT_LIMITS)


def _take(key: Hashable) -> _Drivers:
    """Return the driver's connections of sessions that were kept and still live, one or two; none if there are none."""
    kept = _kept[-1].get(key, []) if _kept else []
    while kept:
        drivers = kept.pop()
        with suppress(DriverError):
            for driver in drivers:
                driver.execute("")
            return drivers
        _close(drivers)
    return ()


def _close(drivers: _Drivers) -> None:
    for driver in drivers:
        driver.close()


_catalogs: dict[Hashable, tuple[Any, Catalog]] = {}


def catalog_of(session: ControlSession) -> Catalog:
    """Return the database's catalog, which is read again only after a change of the schema."""
    schema = session.driver.execute(_SCHEMA).fetchone()
    fingerprint, catalog = _catalogs.get(session.key, (None, None))
    if catalog is None or fingerprint != schema:
        catalog = Catalog.load(session.driver.cursor())
        _catalogs[session.key] = schema, catalog
    catalog.forget_learned()
    return catalog
