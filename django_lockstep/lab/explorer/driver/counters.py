"""Asks an actor's session what the server counted during each statement; see `effects.counted`."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from psycopg import Connection, ServerCursor
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.pq.abc import PGresult

from django_lockstep.lab.explorer.effects.counted import COUNTED, Count, Counts
from django_lockstep.lab.explorer.effects.operations import Operation
from django_lockstep.lab.explorer.errors import NotExplorable

_NUMBERS = ("numscans", "tuples_inserted", "tuples_updated", "tuples_hot_updated", "tuples_deleted", "blocks_fetched")
# What is counted stays with the session until it is sent to the others, at the end of a transaction at the earliest,
# and seldom more than once in a second. The flag has it sent at the end of this one, so that the next begins at 0.
_COMMON = "pg_current_xact_id_if_assigned() IS NOT NULL, pg_stat_force_next_flush()"


def _text(relation: str, mode: str) -> str:
    """Return the expression of one answer as text: few statements change more than one or two of them."""
    numbers = ", ".join(f"pg_stat_get_xact_{number}({relation})" for number in _NUMBERS)
    return f"string_agg(concat_ws(' ', coalesce({relation}, 0), {mode}, {numbers}), ',')"


# The server's own relations have smaller OIDs (FirstNormalObjectId). The function, not the view pg_locks, which takes
# longer to plan than to run; an answer for each lock, and those of advisory locks without a relation.
_LOCKS = "pg_lock_status() AS l WHERE l.pid = pg_backend_pid() AND (l.relation >= 16384 OR l.locktype = 'advisory')"
_OF_LOCKED = f"SELECT {_text('l.relation', 'l.mode')}, {_COMMON} FROM {_LOCKS}"
_OF_ALL = f"""
SELECT concat_ws(',', (SELECT {_text("l.relation", "l.mode")} FROM {_LOCKS}), (
    SELECT {_text("c.oid", "'-'")} FROM pg_class c
    WHERE c.oid >= 16384 AND c.relkind IN ('r', 'i', 'S', 'm')
          -- Without these two nothing was done to it; a scan of an empty table looks at no block.
          AND pg_stat_get_xact_numscans(c.oid) + pg_stat_get_xact_blocks_fetched(c.oid) > 0)), {_COMMON}
"""
"""Also of relations whose locks are gone: what failed has released them, be it caught in a function."""
_ENDS = re.compile(r"(COMMIT|END|ROLLBACK|ABORT)\b(?!.*\bTO\b)", re.IGNORECASE | re.DOTALL)
_BACK_TO = re.compile(r"ROLLBACK\b.*\bTO\b", re.IGNORECASE | re.DOTALL)
_NOTHING = (0,) * len(_NUMBERS)


class Counters:
    """Sends the statements of one session, and notes with each of them what the server counted meanwhile.

    A statement outside of a transaction is sent in one of its own, so that the session can be asked before its end.
    What a failed one has done is known when its transaction or savepoint is rolled back.
    """

    def __init__(self, driver: Connection[Any]) -> None:
        self._driver = driver
        self._is_sent = False
        """Whether the next transaction begins at 0, because a question has had sent what was counted before."""
        self._forget()

    def begin(self) -> None:
        """Have the next transaction begin at 0, whatever the session did before."""
        self._run(f"SELECT {_COMMON}")
        self._is_sent = True
        self._forget()

    def _begin_at_zero(self) -> None:
        # Not in a pipeline, as an executemany() is one: nothing can be asked there.
        if self._status is TransactionStatus.IDLE and not self._driver.pgconn.pipeline_status:
            if not self._is_sent:
                self.begin()
            self._is_sent = False

    def skip(self) -> None:
        """Leave out what was counted since the last question: it was not the actor."""
        self._counts(self._run(_OF_ALL))

    def send(self, operation: Operation, send: Callable[[], Any], *, cursor: Any = None, in_parts: bool = False) -> Any:
        """Send the statement, and note with the operation what was counted. Raises what ``send`` does.

        ``in_parts``: its answer comes in several steps, between which the session cannot be asked.
        """
        self._begin_at_zero()
        if (
            self._status is TransactionStatus.IDLE
            and not in_parts
            and operation.autocommit
            and COUNTED.match(operation.sql)
        ):
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
        # Without a relation nothing is counted, and nothing else may come before SET TRANSACTION.
        touches_none = operation.statement is not None and operation.statement.kind in {"LOCAL", "COMMIT", "ROLLBACK"}
        if self._status is TransactionStatus.INTRANS and not touches_none:
            back = self._failed and bool(_BACK_TO.match(operation.sql))
            operation.counts = self._ask(everything=back or operation.may_catch, after_failure=back)
            self._failed = self._failed and not back
        elif self._status is TransactionStatus.IDLE:
            self._forget()
        operation.uncounted = in_parts
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
            operation.counts = self._ask(everything=operation.may_catch)
            ended = self._run("COMMIT")
            self._forget()  # also where a deferred constraint has refused it
            self._require(ended)
        return result

    def _end(self, verb: str) -> Counts:
        """End the transaction, and return what was counted since the last question."""
        # In one message: between two of them the session may send what it has counted, and forget it.
        result = self._run(f"{verb}; {_OF_ALL}")
        try:
            self._require(result)
            return self._counts(result, after_failure=verb == "ROLLBACK")
        finally:
            self._forget()

    def _ask(self, *, everything: bool, after_failure: bool = False) -> Counts:
        return self._counts(self._run(_OF_ALL if everything else _OF_LOCKED), after_failure=after_failure)

    def _forget(self) -> None:
        self._known: dict[int, tuple[int, ...]] = {}
        """What was counted until now, by relation, in this transaction."""
        self._modes: Mapping[int, frozenset[str]] = {}
        self._answers: frozenset[bytes] = frozenset()
        self._advisory = 0
        self._failed = False
        """Whether something has failed that could not be asked yet."""

    def _require(self, result: PGresult) -> None:
        if result.status == ExecStatus.FATAL_ERROR:
            raise error_from_result(result, encoding=self._driver.info.encoding)

    def _counts(self, result: PGresult, *, after_failure: bool = False) -> Counts:
        """Return the differences to what was counted before. Raises `NotExplorable` where the server does not say."""
        if result.status != ExecStatus.TUPLES_OK:
            raise NotExplorable(f"The server did not say what it has counted: {result.error_message.decode()}")
        self._is_sent = True
        text, has_id = result.get_value(0, 0) or b"", result.get_value(0, 1) == b"t"
        answers = frozenset(text.split(b","))
        modes: dict[int, frozenset[str]] = {}
        changed: dict[int, tuple[int, ...]] = {}
        for answer in answers:
            relation, held, numbers = _parse(answer)
            modes[relation] = modes.get(relation, held) | held
            if answer not in self._answers:
                changed[relation] = numbers
        advisory = text.count(b",0 ") + text.startswith(b"0 ")
        counts = Counts(
            relations=dict(self._differences(changed, modes)),
            advisory=max(0, advisory - self._advisory),
            has_id=has_id,
            after_failure=after_failure,
        )
        self._answers, self._modes, self._advisory = answers, modes, advisory
        return counts

    def _differences(
        self, changed: Mapping[int, tuple[int, ...]], modes: Mapping[int, frozenset[str]]
    ) -> Iterator[tuple[int, Count]]:
        for relation, numbers in changed.items():
            held = modes.get(relation, frozenset())
            new = held - self._modes.get(relation, frozenset())
            before = self._known.get(relation, _NOTHING)
            if relation and (numbers != before or new):
                # TRUNCATE counts back.
                changes = [abs(now - earlier) for now, earlier in zip(numbers, before, strict=True)]
                scans, inserted, updated, hot, deleted, blocks = changes
                yield relation, Count(scans, inserted, updated, hot, deleted, blocks, held, new)
        self._known.update(changed)

    @property
    def _status(self) -> TransactionStatus:
        return TransactionStatus(self._driver.pgconn.transaction_status)

    def _run(self, sql: str) -> PGresult:
        # Not through the driver's methods, which would pass the gate and could begin a transaction.
        return self._driver.pgconn.exec_(sql.encode())


@functools.lru_cache(maxsize=4096)
def _parse(answer: bytes) -> tuple[int, frozenset[str], tuple[int, ...]]:
    """Return the relation, the lock on it, and what was counted; every schedule gives the same few answers again."""
    oid, mode, *numbers = answer.split(b" ") if answer else (b"0", b"-")
    return int(oid), frozenset(() if mode == b"-" else (mode.decode(),)), tuple(map(int, numbers)) or _NOTHING
