"""Hooks on one connection: every round trip passes a gate. Only instances are touched, no class.

Django's execute wrapper sees a statement with its parameters; what does not come that way (COMMIT, ROLLBACK, FETCH,
COPY, cursors of the driver) passes ``wait``, through which psycopg sends everything.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from types import FrameType, GeneratorType
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg import Connection, Error, Transaction
from psycopg.adapt import Transformer
from psycopg.pq import ExecStatus, Format, TransactionStatus
from psycopg.types.json import Jsonb

from django_lockstep.lab.explorer.driver.counters import Counters
from django_lockstep.lab.explorer.effects.operations import Operation, caller_of, sent_from, text_of, value_text
from django_lockstep.lab.explorer.errors import NotExplorable

_MOST_VALUES = 3
_JSON = {114, 3802}
"""The OIDs of json and jsonb in every PostgreSQL."""
# The driver's numbers; PostgreSQL has no level below READ COMMITTED.
_ISOLATION = {1: "read committed", 2: "read committed", 3: "repeatable read", 4: "serializable"}


class Gate:
    """What an operation passes on its way to the server and back."""

    detailed = False
    """Whether the first rows returned are kept."""

    def before(self, operation: Operation) -> None:
        """Block until the operation may be sent."""

    def after(self, operation: Operation) -> None:
        """Block until the code that sent it may go on."""


class Hooks:
    """Passes everything that one Django connection sends through a gate, until `remove`."""

    def __init__(self, wrapper: BaseDatabaseWrapper, gate: Gate, *, counts: bool = False) -> None:
        self.wrapper = wrapper
        self._gate = gate
        self.driver = wrapper.connection
        self.counters = Counters(self.driver) if counts else None
        self._inside = False
        self.pid: int = self.driver.info.backend_pid
        self._wait: Callable[..., Any] = self.driver.wait
        # The level of transactions that do not set one, from the server or Django's settings.
        self.isolation = one_value(self.driver, "SHOW default_transaction_isolation") or ""
        self.read_only = one_value(self.driver, "SHOW default_transaction_read_only") == "on"
        # Requests end connections of this age at their start and end; an actor's has to last for all schedules.
        wrapper.close_at = None
        # Last, because Ctrl-C may come before. On the instance: other connections of the process keep the class's
        # method.
        wrapper.execute_wrappers.append(self._executed)
        self.driver.wait = self._waited

    def remove(self) -> None:
        """Remove the hooks from the connection."""
        vars(self.driver).pop("wait", None)
        if self._executed in self.wrapper.execute_wrappers:
            self.wrapper.execute_wrappers.remove(self._executed)

    def send_out_of_band(self, sql: str) -> bool:
        """Send a statement past the gate, and return whether the server took it."""
        if self.driver.closed:
            return False
        # Not through the driver's methods, which would pass the gate and could begin a transaction.
        result = self.driver.pgconn.exec_(sql.encode())
        return bool(result.status in {1, 2})  # COMMAND_OK, TUPLES_OK

    def _executed(self, execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any) -> Any:
        text = text_of(sql, self.driver)
        # What is sent while another statement passes the gate, by an execute wrapper of the code for one, belongs to
        # it.
        if self._inside or not text:
            return execute(sql, params, many, context)
        self._require_no_pipeline()
        operation = self._operation(text, params, many=many, frame=caller_of(context["cursor"], sys._getframe()))
        cursor = context["cursor"].cursor
        # The COMMIT of a statement that is sent in a transaction of its own raises the driver's errors.
        with self.wrapper.wrap_database_errors:
            return self._pass(operation, lambda: execute(sql, params, many, context), cursor=cursor)

    def _waited(self, generator: GeneratorType[Any, Any, Any], *args: Any, **kwargs: Any) -> Any:
        name = generator.gi_code.co_name
        # Django calls commit() and rollback() outside of transactions too, and the driver then sends nothing.
        is_idle = self.driver.info.transaction_status is TransactionStatus.IDLE
        idle_end = is_idle and name in {"_commit_gen", "_rollback_gen"}
        # What is sent while a step passes the gate belongs to that step; _set_* generators only set attributes.
        if self._inside or idle_end or name.startswith("_set_"):
            return self._wait(generator, *args, **kwargs)
        if name == "_execute_gen":  # not that of executemany(), which is a pipeline by itself
            self._require_no_pipeline()
        operation = self._operation(*sent_by(generator, self.driver))
        return self._pass(
            operation, lambda: self._wait(generator, *args, **kwargs), in_parts=name == "_stream_send_gen"
        )

    def _require_no_pipeline(self) -> None:
        if self.driver.pgconn.pipeline_status:
            raise NotExplorable(
                "An actor uses the pipeline mode of psycopg, in which statements are sent together and cannot be "
                "scheduled one by one"
            )

    def _operation(self, sql: str, params: Any, *, many: bool = False, frame: FrameType | None = None) -> Operation:
        chosen = self.driver.isolation_level
        return Operation(
            alias=self.wrapper.alias,
            pid=self.pid,
            sql=sql,
            params=params,
            many=many,
            in_transaction=self.driver.info.transaction_status is not TransactionStatus.IDLE,
            autocommit=bool(self.driver.autocommit),
            isolation=_ISOLATION[int(chosen)] if chosen is not None else self.isolation,
            read_only=self.read_only if self.driver.read_only is None else bool(self.driver.read_only),
            origin=sent_from(frame or sys._getframe(2)),
        )

    def _pass(
        self, operation: Operation, send: Callable[[], Any], *, cursor: Any = None, in_parts: bool = False
    ) -> Any:
        self._gate.before(operation)
        self._inside = True
        try:
            if self.counters is None:
                return send()
            return self.counters.send(operation, send, cursor=cursor, in_parts=in_parts)
        except BaseException as error:
            operation.error = error
            raise
        finally:
            self._inside = False
            # Read before the gate: while the actor holds there, the controller needs to know whether locks were
            # released.
            status = self.driver.info.transaction_status
            operation.ends_idle = status in {TransactionStatus.IDLE, TransactionStatus.UNKNOWN}
            if cursor is not None and operation.error is None and not cursor.closed:
                self._keep(operation, cursor)
            # In any case: an actor that waited and failed must hold like one that succeeded.
            self._gate.after(operation)

    def _keep(self, operation: Operation, cursor: Any) -> None:
        operation.rows = cursor.rowcount if cursor.rowcount >= 0 else None
        result = getattr(cursor, "pgresult", None)
        if result is not None and operation.sql[:6].upper() == "INSERT" and result.nfields:
            keys = (result.get_value(row, 0) for row in range(result.ntuples))
            operation.numbered = tuple(key.decode(errors="replace") for key in keys if key)
            operation.numbered_in = result.ftable(0)
        if self._gate.detailed and result is not None:
            places: dict[str, int] = {}
            for column in range(result.nfields):
                # Of columns with one name the first: those of joined rows come later.
                places.setdefault((result.fname(column) or b"").decode(), column)
            texts = _Texts(self.driver, result)
            operation.values = tuple(
                {name: texts.of(row, column) for name, column in places.items()}
                for row in range(min(result.ntuples, _MOST_VALUES))
            )


class _Texts:
    """Values of a result as parameters look, so that what was read can be compared with what is written."""

    def __init__(self, driver: Connection[Any], result: Any) -> None:
        self._transformer, self._result = Transformer(driver), result

    def of(self, row: int, column: int) -> str | None:
        value: bytes | None = self._result.get_value(row, column)
        if value is None:
            return None
        oid = self._result.ftype(column)
        try:
            # Django has the driver return JSON as text.
            loaded = Jsonb(json.loads(value)) if oid in _JSON else self._load(value, oid, self._result.fformat(column))
        except (Error, ValueError):
            return value.decode(errors="replace")  # such as a date behind the year 9999
        return value_text(loaded)

    def _load(self, value: bytes, oid: int, form: int) -> Any:
        return self._transformer.get_loader(oid, Format(form)).load(value)


_FIXED = {"_commit_gen": "COMMIT", "_rollback_gen": "ROLLBACK", "_close_gen": "CLOSE"}
_WITH_TEXT = {
    "_execute_gen": "query",
    "_declare_gen": "query",
    "_stream_send_gen": "query",
    "_start_copy_gen": "statement",
}
"""The argument that holds the statement."""
_DECLARED = re.compile(rb"\s*DECLARE .*? CURSOR (?:WITH HOLD )?FOR (.*)", re.IGNORECASE | re.DOTALL)


def sent_by(generator: GeneratorType[Any, Any, Any], driver: Connection[Any]) -> tuple[str, Any]:
    """Return the statement and its parameters; the generator's name if its arguments do not contain a statement."""
    name = generator.gi_code.co_name
    arguments = generator.gi_frame.f_locals if generator.gi_frame is not None else {}
    if name in _WITH_TEXT:
        return text_of(arguments[_WITH_TEXT[name]], driver), arguments.get("params")
    text = _FIXED.get(name) or _of_block(name, arguments, driver) or _of_cursor(name, arguments)
    return text or name.strip("_").removesuffix("_gen").replace("_", " "), None


def _of_block(name: str, arguments: Mapping[str, Any], driver: Connection[Any]) -> str | None:
    """Return what the start or end of ``connection.transaction()`` sends."""
    block = arguments.get("self")
    if not isinstance(block, Transaction):
        return None
    named = block.savepoint_name or ""
    if name == "_enter_gen":
        idle = driver.pgconn.transaction_status == TransactionStatus.IDLE
        return "BEGIN" if idle else "SAVEPOINT"
    if named and not named.startswith("_pg3_"):
        return None  # a named block may be a whole transaction or a savepoint
    if arguments.get("exc_val") is None and not block.force_rollback:
        return "RELEASE SAVEPOINT" if named else "COMMIT"
    return "ROLLBACK TO SAVEPOINT" if named else "ROLLBACK"


def _of_cursor(name: str, arguments: Mapping[str, Any]) -> str | None:
    """Return a FETCH with the query of the server-side cursor, which may lock the rows."""
    query = getattr(getattr(arguments.get("self"), "_query", None), "query", b"")
    declared = _DECLARED.match(query) if name == "_fetch_gen" else None
    return f"FETCH {text_of(declared[1], None)}" if declared else None


def one_value(driver: Connection[Any], query: str) -> str | None:
    """Return the one value of a query; None if it is NULL, or if the server refuses the query."""
    # Not through the driver's methods, which would pass the gate and could begin a transaction.
    result = driver.pgconn.exec_(query.encode())
    value = result.get_value(0, 0) if result.status == ExecStatus.TUPLES_OK else None
    return None if value is None else value.decode()
