"""Records what tests have the project do, without changing what they see.

Connections get an execute wrapper; handlers of requests and `atomic` are wrapped while it is installed. Only a test's
body is recorded, not its fixtures, and only on a database that was made for tests.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from itertools import count
from types import FrameType
from typing import Any
from weakref import WeakSet

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from django_lockstep.lab.explorer.effects.operations import caller_of, text_of
from django_lockstep.lab.explorer.tables.databases import is_test_database
from django_lockstep.lab.finder.record.fingerprints import Fingerprints
from django_lockstep.lab.finder.record.interception import (
    CallNext,
    buffer_body,
    current_request,
    intercept,
    intercept_async,
)
from django_lockstep.lab.finder.record.reader import StatementReader, instances, is_of_interest
from django_lockstep.lab.finder.record.recording import PASSED_ROW, RecordedStatement, RecordingWriter, Site
from django_lockstep.lab.finder.record.redaction import mask_message
from django_lockstep.lab.finder.record.stack import CodeMap
from django_lockstep.lab.finder.record.units import (
    MOST_STATEMENTS,
    Calls,
    Draft,
    Transactions,
    call_arguments,
    plain_values,
    request_inputs,
)
from django_lockstep.lab.wording import gettext as _

_request: ContextVar[Draft | None] = ContextVar("_request", default=None)
"""The request that this thread or task handles."""


class Recorder:
    """Writes the units of a test run."""

    def __init__(self, writer: RecordingWriter, *, code: CodeMap, fingerprints: Fingerprints) -> None:
        self._writer = writer
        self._code = code
        self._fingerprints = fingerprints
        self._transactions = Transactions()
        self._numbers = count()
        """Of the test's requests, in the order in which their handling begins; `Points` counts alike."""
        self._calls = Calls(begin=self._begin_call, end=self._write)
        self._reader = StatementReader(fingerprints, writer.write_tables)
        self._connections: WeakSet[BaseDatabaseWrapper] = WeakSet()
        self._test = ""
        self._tests = 0
        self.notes: dict[str, None] = {}
        """Sentences on what could not be recorded."""

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Record between `begin_test` and `end_test`; close the recording at the end."""
        with ExitStack() as stack:
            # First, so that the file is closed last: the others may still write when they end.
            stack.callback(lambda: self._writer.close(tests=self._tests, notes=self.notes))
            stack.enter_context(intercept(self._on_request))
            stack.enter_context(intercept_async(self._on_async_request))
            stack.enter_context(self._transactions.counted())
            stack.enter_context(self._calls.letting_go())
            connection_created.connect(self._attach)
            stack.callback(connection_created.disconnect, self._attach)
            stack.callback(self._detach)
            for connection in connections.all(initialized_only=True):
                self._attach(connection)
            yield

    def begin_test(self, test: str) -> None:
        """Record what the process does from now on as this test's; its fixtures have to be there."""
        self._numbers = count()
        self._test = test

    def end_test(self) -> None:
        """Write what is left of the test."""
        self._calls.finish_all()
        self._test = ""
        self._tests += 1

    # Connections

    def _attach(self, connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
        if self._executed not in connection.execute_wrappers:
            # First, so that blocks that take away the last one, their own, find that.
            connection.execute_wrappers.insert(0, self._executed)
            self._connections.add(connection)

    def _detach(self) -> None:
        for connection in self._connections:
            if self._executed in connection.execute_wrappers:
                connection.execute_wrappers.remove(self._executed)

    def _executed(self, execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any) -> Any:
        # Located before, since it may change the rows that a call was passed. Noted afterwards: only what has succeeded
        # is recorded, with the rows that came back.
        sent = self._safely(self._locate_statement, sql, context) if self._test else None
        result = execute(sql, params, many, context)
        if sent is not None and self._test:
            self._safely(self._note, sent, params, many, context)
        return result

    def _safely(self, note: Callable[..., Any], *arguments: Any) -> Any:
        """Note something, and return what comes of it; the test goes on whatever that is."""
        try:
            return note(*arguments)
        except Exception as error:  # noqa: BLE001  # a fault of the recorder must not fail a test of the project
            why = f"{type(error).__name__}: {mask_message(str(error))}"
            self.notes[_("Some statements could not be recorded: {why}", why=why)] = None

    # Statements

    def _locate_statement(self, sql: Any, context: Any) -> tuple[str, Draft | None, Site | None]:
        """Return the statement's text, the unit that sends it, if it is to be recorded, and the line of code."""
        connection: BaseDatabaseWrapper = context["connection"]
        text = text_of(sql, connection.connection)
        if not is_of_interest(text) or not self._is_recordable(connection):
            return text, None, None
        return text, *self._locate(caller_of(context["cursor"], sys._getframe()))

    def _note(self, sent: tuple[str, Draft | None, Site | None], params: Any, many: bool, context: Any) -> None:
        connection: BaseDatabaseWrapper = context["connection"]
        text, draft, site = sent
        # Also of statements that are not recorded: SET TRANSACTION is one.
        self._transactions.note_statement(connection, text)
        if draft is None or len(draft.statements) >= MOST_STATEMENTS:
            return
        statement = self._reader.read(
            text,
            params,
            context,
            keys=draft.keys,
            many=many,
            transaction=draft.transaction(connection.alias, self._transactions.current(connection)),
            isolation=self._transactions.isolation(connection),
            site=site,
        )
        draft.statements.append(statement)

    def _is_recordable(self, connection: Any) -> bool:
        name, why = repr(connection.alias), ""
        if not hasattr(connection.connection, "pgconn"):
            driver = f"{connection.display_name} with {connection.Database.__name__}"
            why = _("that needs PostgreSQL with psycopg 3, and it is {driver}", driver=driver)
        elif not is_test_database(connection):
            name += f" ({connection.settings_dict['NAME']})"
            why = _("Django has not made it for these tests")
        if why:
            self.notes[_("Database {name} was not recorded: {why}", name=name, why=why)] = None
        return not why

    def _locate(self, frame: FrameType | None) -> tuple[Draft | None, Site | None]:
        """Return the unit that goes on, and the line of the project's code that the frame was called from."""
        draft = _request.get()
        # Inside of a request, the frames above the site need not be looked at.
        site, call = self._code.walk(frame, whole=draft is None)
        if draft is None and call is not None:
            draft = self._calls.draft(call)
        return draft, site

    # Units

    def _on_request(self, handler: Any, environ: dict[str, Any], call_next: CallNext) -> Any:
        if not self._test:
            return call_next(environ)
        with self._recorded("request", next(self._numbers), buffer_body(environ)):
            return call_next(environ)

    async def _on_async_request(self, body: bytes, call_next: Callable[[], Awaitable[Any]]) -> Any:
        if not self._test:
            return await call_next()
        # Without a number of its own: only those are counted that can be forked.
        with self._recorded("asynchronous request", 0, body):
            return await call_next()

    @contextmanager
    def _recorded(self, kind: str, number: int, body: bytes) -> Iterator[None]:
        draft = Draft(test=self._test, kind=kind, number=number)
        token = _request.set(draft)
        try:
            yield
        finally:
            _request.reset(token)
            self._safely(self._end_request, draft, body)

    def _end_request(self, draft: Draft, body: bytes) -> None:
        request = current_request()
        if request is None or request.resolver_match is None or not draft.statements:
            return
        draft.name = f"{request.method} {request.resolver_match.route}"
        for value in request_inputs(request, body):
            draft.inputs |= set(self._fingerprints.of_input(value))
        self._write(draft)

    def _begin_call(self, frame: Any, number: int) -> Draft:
        name = f"{frame.f_globals.get('__name__')}.{frame.f_code.co_qualname}"
        arguments = call_arguments(frame)
        inputs = {text for value in plain_values(arguments) for text in self._fingerprints.of_input(value)}
        draft = Draft(test=self._test, kind="call", number=number, name=name, inputs=inputs)
        for instance in instances(arguments):
            alias = instance._state.db or DEFAULT_DB_ALIAS
            if self._is_recordable(connections[alias]):
                rows = self._reader.read_instance(instance, keys=draft.keys)
                statement = RecordedStatement(
                    sql=PASSED_ROW, read=rows, rows=len(rows), alias=alias, site=self._code.definition(frame)
                )
                draft.statements.append(statement)
        return draft

    def _write(self, draft: Draft) -> None:
        unit = draft.finish()
        if unit is not None:
            self._writer.write_unit(unit)
