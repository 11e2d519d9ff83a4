"""Leases on PostgreSQL: each operation is one statement and one round trip."""

from __future__ import annotations

import functools
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from django.db import OperationalError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg import ClientCursor

from django_lockstep.errors import sqlstate_of
from django_lockstep.leases.database import TURN, DatabaseLeases, lease_model, on_own_connection, own_grant
from django_lockstep.leases.errors import LeaseLost
from django_lockstep.leases.lines import lines, most_waiters
from django_lockstep.leases.operations import GUARD_LOCK, TURN_LOCK, quoted_names
from django_lockstep.locking.durations import Duration, seconds
from django_lockstep.locking.prepared import fetch
from django_lockstep.locking.rows import require_transaction
from django_lockstep.locking.transactions import is_of_testcase
from django_lockstep.stores.protocol import CALL_TIMEOUT, pauses, timeout_of
from django_lockstep.stores.terms import Claim, Grant, Holder, valid_key, valid_token

# Independent of the project's isolation level: an operation decides by what is committed at that moment.
SETTINGS = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = {milliseconds}; "

OWN_LIMIT = """
SELECT CASE current_setting('default_transaction_isolation') WHEN 'read committed'
    THEN ceil(extract(epoch FROM current_setting('statement_timeout')::interval) * 1000)::integer ELSE 0 END
"""

# The functions are explained in django_lockstep.leases.operations.
ACQUIRE = "SELECT * FROM {acquire}(%s, %s, %s::jsonb, %s::double precision, %s, %s::integer)"
RELEASE = "SELECT {release}(%s, %s::bigint, %s::double precision, %s::integer)"

# Never earlier than before: the next heartbeat must not shorten a longer refresh.
REFRESH = """
UPDATE {table} SET expires_at = greatest(expires_at, clock_timestamp() + make_interval(secs => %(ttl)s))
WHERE key = %(key)s AND token = %(token)s AND released_at IS NULL
"""

NOTE = """
UPDATE {table} SET data = %(data)s::jsonb WHERE key = %(key)s AND token = %(token)s AND released_at IS NULL
"""

# SKIP LOCKED: a row that is being taken over is lost, without a wait. FOR KEY SHARE passes a heartbeat's lock.
# The time limit counts from here. A shorter limit of the session stays: a running timer continues until it is set to
# zero (the inner set_config) before the new value.
GUARD = f"""
SELECT pg_advisory_xact_lock_shared({GUARD_LOCK.format(key="key")}),
    CASE WHEN current = 0 OR limit_ms < current - elapsed THEN
        set_config(%(limit)s, coalesce(nullif(set_config(%(limit)s, '0', true), '0'), limit_ms::bigint::text), true) END
FROM (SELECT key, least(ceil(coalesce(%(within)s, ttl) * 1000), 2147483647) AS limit_ms,
        extract(epoch FROM current_setting(%(limit)s)::interval) * 1000 AS current,
        extract(epoch FROM clock_timestamp() - now()) * 1000 AS elapsed
    FROM {{table}} WHERE key = %(key)s AND token = %(token)s AND released_at IS NULL
    FOR KEY SHARE SKIP LOCKED) AS held
"""
# No one takes over what has not expired: a claim or a purge that has locked that row came too late, and lets go soon.
GUARD_UNEXPIRED = GUARD.replace("IS NULL\n", "IS NULL AND expires_at > clock_timestamp()\n").replace(" SKIP LOCKED", "")

# The server grants advisory locks in the order of the requests. The caller decides how long to wait, so the session's
# own limits are off until the end of the transaction.
QUEUE = """
SET LOCAL lock_timeout = 0;
SET LOCAL idle_in_transaction_session_timeout = 0;
SELECT pg_advisory_xact_lock(hashtextextended('lockstep.leases:' || %(key)s, 0));
SET LOCAL statement_timeout = %(after)s
"""
# PostgreSQL 17 and later also have transaction_timeout; on older servers setting it would be an error.
_NO_TRANSACTION_TIMEOUT, _ITS_VERSION = "SET LOCAL transaction_timeout = 0; ", 170000
_LIMIT, _LIMIT_BEFORE = "transaction_timeout", "idle_in_transaction_session_timeout"


# Waits for claims in progress, which hold the turn lock in share mode: briefly, for one statement each.
CLAIM_TURN = f"SELECT pg_advisory_xact_lock({TURN_LOCK.format(key='%(key)s')})"


class PostgresLeases(DatabaseLeases):
    """The store on one database; each operation raises Django's database errors."""

    def take_here(self, claim: Claim, *, yields_to_queue: bool = False) -> Grant | Holder | None:
        params = [claim.key, claim.owner, claim.data, claim.ttl, yields_to_queue]
        # Taken before the statement is sent: the lease may have started at any time after.
        requested_at = time.monotonic()
        row = self._called(ACQUIRE, params, timeout=timeout_of(claim.ttl))
        granted, token, since, owner, data, released, remaining, under_guard = row
        # Django's cursors return JSON as text, those of prepared statements do not.
        data = json.loads(data) if isinstance(data, str) else data
        if granted:
            return Grant(token=token, since=since, requested_at=requested_at, data=json.dumps(data))
        if token is None:
            return None
        holder = Holder(
            key=claim.key,
            owner=owner,
            token=token,
            since=since,
            remaining=max(0.0, remaining),
            data=data,
            released=released,
            under_guard=under_guard,
        )
        return own_grant(claim, holder, requested_at=requested_at)

    @on_own_connection
    def _turn(self, claim: Claim, *, until: float, is_first: Callable[[float], bool]) -> Grant | Holder | None:
        # In the transaction of a TestCase an advisory queue lock would outlive the wait.
        if self.connection.in_atomic_block:
            return self._poll(claim, until=until)
        if is_first(min(until - time.monotonic(), TURN)):
            with lines.joined(self.name, places=most_waiters()) as has_place:
                for pause in pauses(until):
                    if has_place(pause):
                        return self._queued(claim, until=min(until, time.monotonic() + TURN))
                    # Polls until there is a place, so that no lease waits for the holder of another one. Those who hold
                    # places stand in line again after `TURN`.
                    answer = self.take_here(claim, yields_to_queue=True)
                    if isinstance(answer, Grant):
                        return answer
        return self.take_here(claim, yields_to_queue=True)

    def _queued(self, claim: Claim, *, until: float) -> Grant | Holder | None:
        timeout = timeout_of(claim.ttl)
        try:
            with transaction.atomic(using=self.name):
                self.queue(claim.key, timeout=max(until - time.monotonic(), 0.001), after=timeout)
                return self._poll(claim, until=until, claim_turn=lambda: self.claim_turn(claim.key, timeout=timeout))
        except OperationalError as error:
            # 57014: the time in the queue is over (statement_timeout), which is an answer and not an error.
            if sqlstate_of(error) != "57014":
                raise
        return self.take_here(claim, yields_to_queue=True)

    def queue(self, key: str, *, timeout: float, after: float) -> None:
        """Wait in the open transaction until this session is first in the queue for the lease.

        Later statements of the transaction have ``after`` seconds each.
        """
        values = {"key": key, "after": math.ceil(after * 1000)}
        sql = _NO_TRANSACTION_TIMEOUT + QUEUE if self._has_transaction_timeout() else QUEUE
        with self._executed(sql, values, timeout=timeout, begins=True):
            pass

    def claim_turn(self, key: str, *, timeout: float) -> None:
        """Stop claims that yield to the queue from taking the lease before this transaction ends."""
        self._row(CLAIM_TURN, {"key": key}, timeout=timeout)

    @on_own_connection
    def renew(self, key: str, token: int, *, ttl: float, timeout: float = CALL_TIMEOUT) -> bool:
        values = {"key": key, "token": valid_token(token), "ttl": ttl}
        with self._executed(REFRESH, values, timeout=timeout) as cursor:
            return bool(cursor.rowcount)

    @on_own_connection
    def note(self, key: str, token: int, *, data: str, timeout: float = CALL_TIMEOUT) -> bool:
        with self._executed(NOTE, {"key": key, "token": token, "data": data}, timeout=timeout) as cursor:
            return bool(cursor.rowcount)

    @on_own_connection
    def release(
        self, key: str, token: int, *, at_least: float = 0.0, held: float = 0.0, timeout: float = CALL_TIMEOUT
    ) -> bool:
        return bool(self._called(RELEASE, [key, token, at_least], timeout=timeout)[0])

    def guard(self, key: str, token: int, *, within: Duration | None = None) -> None:
        # In autocommit the row lock would end with its statement, before the write that it is for.
        require_transaction(self.connection, lease_model())
        longest = None if within is None else seconds(within, name="within")
        if is_of_testcase(self.connection):
            longest = math.inf  # a timeout would end the connection of the whole test
        limit = _LIMIT if self._has_transaction_timeout() else _LIMIT_BEFORE
        values = {"key": valid_key(key), "token": valid_token(token), "within": longest, "limit": limit}
        lost = LeaseLost(f"Lease {key!r} is lost: token {token} does not hold it", key=key, token=token)
        try:
            is_held = any(self._row(sql, values, timeout=0) is not None for sql in (GUARD, GUARD_UNEXPIRED))
        except OperationalError as error:
            # Above READ COMMITTED a concurrent takeover raises 40001 instead of matching no row.
            if _overtaken(error):
                raise lost from error
            raise
        if not is_held:
            raise lost

    def _called(self, sql: str, params: Sequence[Any], *, timeout: float) -> Any:
        """Return the function's row, by a prepared statement where the session's own settings fit.

        ``params`` are all but the last, the time limit.
        """
        limit, connection = math.ceil(timeout * 1000), self.connection
        # Not in a transaction: there a prepared statement keeps its snapshot until the next one, which delays VACUUM.
        if not connection.in_atomic_block and 0 < _own_limit(connection) <= limit:
            named = _named(sql, self.name, lease_model()._meta.db_table)
            row = fetch(connection, named, [*params, limit])[0]
            if row[0] is not None:
                return row
            # Nothing was done: the settings were changed, or a pooler gave this connection another session.
            _own_limits[connection.connection] = 0
        return self._row(sql, [*params, None], timeout=timeout)

    def _has_transaction_timeout(self) -> bool:
        return bool(self.connection.pg_version >= _ITS_VERSION)  # type: ignore[attr-defined]

    def _row(self, sql: str, params: Mapping[str, Any] | list[Any], *, timeout: float) -> Any:
        with self._executed(sql, params, timeout=timeout) as cursor:
            return cursor.fetchone()

    @contextmanager
    def _executed(
        self, sql: str, params: Mapping[str, Any] | list[Any], *, timeout: float, begins: bool = False
    ) -> Iterator[Any]:
        """Send the statement with its settings in one message: one transaction where none is open.

        Settings are sent only for our own transaction (``begins`` marks the open one as ours), never for a caller's.
        """
        sql = _named(sql, self.name, lease_model()._meta.db_table)
        if begins or not self.connection.in_atomic_block:
            sql = SETTINGS.format(milliseconds=math.ceil(timeout * 1000)) + sql
        with self.connection.cursor() as cursor:
            if self.connection.settings_dict["OPTIONS"].get("server_side_binding"):  # allows one statement only
                cursor.cursor = ClientCursor(self.connection.connection)
            cursor.execute(sql, params)
            while cursor.nextset():
                pass
            yield cursor


_own_limits: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
"""By the driver's connection: the result of ``OWN_LIMIT``."""


def _own_limit(connection: BaseDatabaseWrapper) -> int:
    """Return the session's own statement_timeout in milliseconds, read once for each connection.

    0 without a limit, and at another level than READ COMMITTED.
    """
    connection.ensure_connection()
    if (session := connection.connection) not in _own_limits:
        with connection.cursor() as cursor:
            cursor.execute(OWN_LIMIT)
            _own_limits[session] = cursor.fetchone()[0]
    return _own_limits[session]


@functools.cache  # bounded by the number of statements and databases
def _named(sql: str, using: str, table: str) -> str:
    """Return the SQL with the names of the table, sequence and functions."""
    return sql.format(**quoted_names(table, connections[using].ops.quote_name))


def _overtaken(error: OperationalError) -> bool:
    """Whether the row has another token than in the transaction's snapshot (REPEATABLE READ and above).

    SERIALIZABLE raises the same SQLSTATE for other reasons, which another attempt may cure; the error's source file
    distinguishes them in every language of the server.
    """
    diagnosis = getattr(error.__cause__, "diag", None)
    return sqlstate_of(error) == "40001" and getattr(diagnosis, "source_file", None) == "nodeLockRows.c"
