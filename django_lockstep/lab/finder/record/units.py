"""Units of work while they are recorded."""

from __future__ import annotations

import gc
import json
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from traceback import walk_stack
from types import FrameType
from typing import Any
from unittest import mock
from urllib.parse import parse_qsl
from weakref import WeakKeyDictionary

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.transaction import Atomic
from django.http import HttpRequest
from psycopg import IsolationLevel

from django_lockstep.lab.explorer.effects.sql import isolation_level_set
from django_lockstep.lab.finder.record.recording import RecordedStatement, Unit

_MATTERS = re.compile(
    r"\s*(?:INSERT|UPDATE|DELETE|MERGE|LOCK)\b|\bFOR\s+(?:NO\s+KEY\s+)?(?:UPDATE|SHARE)\b|"
    r"\s*WITH\b.*\b(?:INSERT|UPDATE|DELETE)\b",
    re.IGNORECASE | re.DOTALL,
)
"""What writes or locks; a word that is found in a string only keeps a unit that could be left out."""
# More are sent by loops, whose first rounds tell as much.
MOST_STATEMENTS = 1000
_MOST_CALLS = 20
"""Units of one function that are kept of one test: some tests call one thousands of times."""


@dataclass(slots=True)
class Draft:
    """A unit that goes on."""

    test: str
    kind: str
    number: int
    name: str = ""
    inputs: set[str] = field(default_factory=set)
    statements: list[RecordedStatement] = field(default_factory=list)
    keys: dict[str, int | str] = field(default_factory=dict)
    """The primary keys that it read, by fingerprint."""
    transactions: dict[tuple[str, int], int] = field(default_factory=dict)
    """Its numbers of transactions, by alias and the number of the process."""

    def transaction(self, alias: str, number: int | None) -> int | None:
        """Return the unit's own number of a transaction."""
        return None if number is None else self.transactions.setdefault((alias, number), len(self.transactions))

    def finish(self) -> Unit | None:
        """Return the unit; None if it has no name. One in which nothing was written or locked has no statements."""
        if not self.name:
            return None
        unit = Unit(
            test=self.test, kind=self.kind, name=self.name, number=self.number, statements=tuple(self.statements)
        )
        if not any(_MATTERS.search(statement.sql) for statement in self.statements):
            return replace(unit, statements=(), only_read=unit.digest)
        # Numbers before texts: the two cannot be compared.
        order = sorted(self.keys, key=lambda fingerprint: (isinstance(key := self.keys[fingerprint], str), key))
        return replace(unit, inputs=frozenset(self.inputs), key_order=tuple(order))


@dataclass(slots=True)
class _OpenCall:
    frame: FrameType | None
    """Kept, so that no later call gets the same address; it is let go with the next call, or the test's end.

    With it all that the call had is kept, so that it is also let go before unreachable objects are collected: tests
    that look for leaks collect them. Then it is None.
    """
    draft: Draft | None
    """None where enough calls of the function are known."""


class Calls:
    """The calls of the project's functions that a test makes itself, one at a time in each thread."""

    def __init__(self, *, begin: Callable[[FrameType, int], Draft], end: Callable[[Draft], None]) -> None:
        self._begin = begin
        self._end = end
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._open: dict[int, _OpenCall] = {}

    def draft(self, frame: FrameType) -> Draft | None:
        """Return the draft of the call that the frame is of."""
        thread = threading.get_ident()
        call = self._open.get(thread)
        if call is None or call.frame is not frame:
            if call is not None:
                self._finish(call)
            key = (str(frame.f_globals.get("__name__")), frame.f_code.co_qualname)
            with self._lock:
                number = self._counts[key]
                self._counts[key] += 1
            draft = self._begin(frame, number) if number < _MOST_CALLS else None
            call = self._open[thread] = _OpenCall(frame, draft)
        return call.draft

    @contextmanager
    def letting_go(self) -> Iterator[None]:
        """Let calls that have returned go whenever objects are collected."""
        gc.callbacks.append(self._before_collection)
        try:
            yield
        finally:
            gc.callbacks.remove(self._before_collection)

    def _before_collection(self, phase: str, info: dict[str, int]) -> None:
        # Of young objects too often to walk the stacks, and nobody waits for that.
        if phase != "start" or info["generation"] < 2:
            return
        stacks = sys._current_frames()
        # Nothing is written here: a collection may begin anywhere, also while a lock of the recorder is held.
        for thread, call in list(self._open.items()):
            stack = walk_stack(stacks[thread]) if thread in stacks else ()
            if not any(frame is call.frame for frame, _ in stack):
                call.frame = None

    def finish_all(self) -> None:
        """End the calls of a test that is over."""
        while self._open:
            self._finish(self._open.popitem()[1])
        self._counts.clear()

    def _finish(self, call: _OpenCall) -> None:
        if call.draft is not None:
            self._end(call.draft)


# What came into a unit of work from outside: the values of a request, the arguments of a call. Nothing is evaluated
# that the project's code has not evaluated: that could send statements.


def request_inputs(request: HttpRequest, body: bytes) -> Iterator[object]:
    """Yield the values in the query, the path and the body."""
    yield from (value for _, value in parse_qsl(request.META.get("QUERY_STRING", "")))
    match = request.resolver_match
    if match is not None:
        yield from match.args
        yield from match.kwargs.values()
    content_type = request.META.get("CONTENT_TYPE", "")
    if "json" in content_type:
        with suppress(ValueError, RecursionError):
            yield from _plain_parts(json.loads(body))
    elif content_type.startswith("application/x-www-form-urlencoded"):
        yield from (value for _, value in parse_qsl(body.decode(errors="replace")))
    elif (form := vars(request).get("_post")) is not None:  # a form in parts, that the view has read
        for _, values in form.lists():
            yield from values


def _plain_parts(value: object) -> Iterator[object]:
    if isinstance(value, dict | list):
        yield from chain.from_iterable(map(_plain_parts, value.values() if isinstance(value, dict) else value))
    else:
        yield value


def call_arguments(frame: FrameType) -> list[object]:
    """Return the arguments that have names, those of an object as the object."""
    code = frame.f_code
    values = frame.f_locals
    return [values.get(name) for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]]


def plain_values(arguments: Iterable[object]) -> Iterator[object]:
    """Yield the plain values among the arguments; what is computed from an object is not from outside."""
    for value in arguments:
        # By the type alone: to compare or to print a model's instance may send a query.
        if value is not None and type(value).__module__ in {"builtins", "decimal", "datetime", "uuid"}:
            yield from value if isinstance(value, list | tuple) else (value,)


class Transactions:
    """Numbers the transactions of connections, as production has them.

    `TestCase` opens two blocks of its own around a test; the outermost block inside of them is production's
    transaction. Which two of these are the same cannot be seen in what a connection holds, for a decorator's block is
    one object in all calls, so that their beginnings are counted.
    """

    def __init__(self) -> None:
        self._begun: WeakKeyDictionary[BaseDatabaseWrapper, int] = WeakKeyDictionary()
        self._set_levels: WeakKeyDictionary[BaseDatabaseWrapper, tuple[int | None, str]] = WeakKeyDictionary()
        self._defaults: WeakKeyDictionary[Any, str] = WeakKeyDictionary()

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count the blocks that begin."""
        original: Any = Atomic.__enter__

        def entered(block: Atomic) -> None:
            original(block)
            connection = connections[block.using or DEFAULT_DB_ALIAS]
            if _own_blocks(connection) == [block]:
                self._begun[connection] = self._begun.get(connection, 0) + 1

        with mock.patch.object(Atomic, "__enter__", entered):
            yield

    def current(self, connection: BaseDatabaseWrapper) -> int | None:
        """Return the number of the transaction that is open; None with autocommit."""
        blocks = connection.atomic_blocks
        is_open = bool(_own_blocks(connection)) if blocks else not connection.autocommit
        return self._begun.get(connection, 0) if is_open else None

    def note_statement(self, connection: BaseDatabaseWrapper, sql: str) -> None:
        """Note the isolation level that the statement may set for its transaction."""
        if sql[:4].upper() == "SET " and (level := isolation_level_set(sql)):
            self._set_levels[connection] = (self.current(connection), level)

    def isolation(self, connection: BaseDatabaseWrapper) -> str:
        """Return the level of the open transaction."""
        at, level = self._set_levels.get(connection, (None, ""))
        # SET TRANSACTION is over with its transaction.
        if level and at == self.current(connection):
            return level
        driver: Any = connection.connection
        chosen = driver.isolation_level
        return self._default(driver) if chosen is None else IsolationLevel(chosen).name.lower().replace("_", " ")

    def _default(self, driver: Any) -> str:
        if driver not in self._defaults:
            # Past the cursors: a test that counts statements does not count this one.
            value = driver.pgconn.exec_(b"SHOW default_transaction_isolation").get_value(0, 0)
            self._defaults[driver] = value.decode() if value else "read committed"
        return self._defaults[driver]


def _own_blocks(connection: BaseDatabaseWrapper) -> list[Atomic]:
    """Return the blocks that are not a `TestCase`'s."""
    blocks: list[Any] = connection.atomic_blocks
    return [block for block in blocks if not block._from_testcase]
