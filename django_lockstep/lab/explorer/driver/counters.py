"""Asks an actor's session what the server counted during each statement; see `effects.counted`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from psycopg import Connection, ServerCursor
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.pq.abc import PGresult

from django_lockstep.lab.explorer.effects.counted import Count, Counts
from django_lockstep.lab.explorer.effects.operations import Operation
from django_lockstep.lab.explorer.errors import NotExplorable

__all__ = ["Counters"]

_NUMBERS = ("numscans", "tuples_inserted", "tuples_updated", "tuples_hot_updated", "tuples_deleted", "blocks_fetched")
_COUNTED = ", ".join(f"pg_stat_get_xact_{number}({{0}})" for number in _NUMBERS)
# What is counted stays with the session until it is sent to the others, at the end of a transaction at the earliest,
# and seldom more than once in a second. The flag has it sent at the end of this one, so that the next begins at 0.
_COMMON = "pg_current_xact_id_if_assigned() IS NOT NULL, pg_stat_force_next_flush()"
# The server's own relations have smaller OIDs (FirstNormalObjectId). One row without a relation: advisory locks.
_LOCKS = """
(SELECT relation, string_agg(mode, ' ') AS modes FROM pg_locks
 WHERE pid = pg_backend_pid() AND (relation >= 16384 OR locktype = 'advisory') GROUP BY relation) AS l
"""
_OF_LOCKED = f"SELECT l.relation, l.modes, {_COUNTED.format('l.relation')}, {_COMMON} FROM {_LOCKS}"
_OF_ALL = f"""
SELECT coalesce(l.relation, c.oid), l.modes, {_COUNTED.format("coalesce(l.relation, c.oid)")}, {_COMMON} FROM {_LOCKS}
FULL JOIN (SELECT oid FROM pg_class WHERE oid >= 16384 AND relkind IN ('r', 'i', 'S', 'm')) AS c ON c.oid = l.relation
"""
"""Also of relations whose locks are gone: what failed has released them, be it caught in a function."""
_ALONE = re.compile(r"\s*\(*\s*(SELECT|INSERT|UPDATE|DELETE|MERGE|WITH|VALUES|TABLE)\b", re.IGNORECASE)
"""Statements that are the same as the only one of a transaction: others fail there, or begin and end their own."""
_ENDS = re.compile(r"(COMMIT|END|ROLLBACK|ABORT)\b(?!.*\bTO\b)", re.IGNORECASE | re.DOTALL)
_BACK_TO = re.compile(r"ROLLBACK\b.*\bTO\b", re.IGNORECASE | re.DOTALL)
_NOTHING = (0,) * len(_NUMBERS)
_COLUMNS = 3 + len(_NUMBERS)
"""The relation, its locks, what was counted, and whether the transaction has a number."""


class Counters:
    """Sends the statements of one session, and notes with each of them what the server counted meanwhile.

    A statement outside of a transaction is sent in one of its own, so that the session can be asked before its end.
    What a failed one has done is known when its transaction or savepoint is rolled back.
    """

    def __init__(self, driver: Connection[Any]) -> None:
        self._driver = driver
        self._known: dict[int, tuple[int, ...]] = {}
        """What was counted until now, by relation, in this transaction."""
        self._modes: dict[int, frozenset[str]] = {}
        self._advisory = 0
        self._failed = False
        """Whether something has failed that could not be asked yet."""

    def begin(self) -> None:
        """Have the next transaction begin at 0, whatever the session did before."""
        self._run(f"SELECT {_COMMON}")
        self._forget()

    def skip(self) -> None:
        """Leave out what was counted since the last question: it was not the actor."""
        self._ask(of_all=True)

    def send(self, operation: Operation, send: Callable[[], Any], *, cursor: Any = None) -> Any:
        """Send the statement, and note with the operation what was counted. Raises what ``send`` does."""
        if self._status is TransactionStatus.IDLE and operation.autocommit and _ALONE.match(operation.sql):
            return self._send_alone(operation, send, outlives=isinstance(cursor, ServerCursor))
        if self._status is TransactionStatus.INERROR and _ENDS.match(operation.sql):
            operation.counts = self._end("ROLLBACK")  # what is sent afterwards finds no transaction
        try:
            result = send()
        except BaseException:
            self._failed = True
            if self._status is TransactionStatus.IDLE:
                self._forget()
            raise
        if self._status is TransactionStatus.INTRANS and _is_counted(operation):
            back = self._failed and bool(_BACK_TO.match(operation.sql))
            operation.counts = self._ask(of_all=back or operation.may_catch, after_failure=back)
            self._failed = self._failed and not back
        elif self._status is TransactionStatus.IDLE:
            self._forget()
        return result

    def _send_alone(self, operation: Operation, send: Callable[[], Any], *, outlives: bool) -> Any:
        """Send the statement in a transaction of its own. Raises what ``send`` does, or the COMMIT."""
        self._run("BEGIN")
        try:
            result = send()
        except BaseException:
            if self._status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
                operation.counts = self._end("ROLLBACK")
            raise
        if outlives:  # a cursor fetches its rows at COMMIT
            operation.counts = self._end("COMMIT")
        else:
            operation.counts = self._ask(of_all=operation.may_catch)
            self._require(self._run("COMMIT"))
            self._forget()
        return result

    def _ask(self, *, of_all: bool, after_failure: bool = False) -> Counts:
        return self._counts(self._run(_OF_ALL if of_all else _OF_LOCKED), after_failure=after_failure)

    def _end(self, how: str) -> Counts:
        """End the transaction, and return what was counted since the last question."""
        # In one message: between two of them the session may send what it has counted, and forget it.
        result = self._run(f"{how}; {_OF_ALL}")
        self._require(result)
        counts = self._counts(result, after_failure=how == "ROLLBACK")
        self._forget()
        return counts

    def _forget(self) -> None:
        self._known, self._modes, self._advisory, self._failed = {}, {}, 0, False

    def _require(self, result: PGresult) -> None:
        if result.status == ExecStatus.FATAL_ERROR:
            raise error_from_result(result, encoding=self._driver.info.encoding)

    def _counts(self, result: PGresult, *, after_failure: bool = False) -> Counts:
        """Return the differences to what was counted before. Raises `NotExplorable` where the server does not say."""
        if result.status != ExecStatus.TUPLES_OK:
            raise NotExplorable(f"The server did not say what it has counted: {result.error_message.decode()}")
        rows = [[result.get_value(row, column) for column in range(_COLUMNS)] for row in range(result.ntuples)]
        modes = {int(row[0]): frozenset((row[1] or b"").decode().split()) for row in rows if row[0] is not None}
        advisory = sum(len((row[1] or b"").split()) for row in rows if row[0] is None)
        counts = Counts(
            relations=dict(self._differences(rows, modes)),
            advisory=advisory > self._advisory,
            has_id=any(row[_COLUMNS - 1] == b"t" for row in rows),
            after_failure=after_failure,
        )
        self._modes, self._advisory = modes, advisory
        return counts

    def _differences(
        self, rows: list[list[bytes | None]], modes: Mapping[int, frozenset[str]]
    ) -> Iterator[tuple[int, Count]]:
        for oid, _, *counted in rows:
            if oid is None:
                continue
            relation = int(oid)
            numbers = tuple(int(number or 0) for number in counted[: len(_NUMBERS)])
            new = modes[relation] - self._modes.get(relation, frozenset())
            before = self._known.get(relation, _NOTHING)
            if numbers != before or new:
                changes = (abs(now - earlier) for now, earlier in zip(numbers, before, strict=True))  # TRUNCATE: back
                scans, inserted, updated, hot, deleted, blocks = changes
                yield (
                    relation,
                    Count(
                        scans=scans,
                        inserted=inserted,
                        updated=updated,
                        hot=hot,
                        deleted=deleted,
                        blocks=blocks,
                        modes=modes[relation],
                        new_modes=new,
                    ),
                )
            self._known[relation] = numbers

    @property
    def _status(self) -> TransactionStatus:
        return TransactionStatus(self._driver.pgconn.transaction_status)

    def _run(self, sql: str) -> PGresult:
        # Not through the driver's methods, which would pass the gate and could begin a transaction.
        return self._driver.pgconn.exec_(sql.encode())


def _is_counted(operation: Operation) -> bool:
    """Whether the statement may touch a relation: nothing else may come before SET TRANSACTION."""
    return operation.statement is None or operation.statement.kind not in {"LOCAL", "COMMIT", "ROLLBACK"}
