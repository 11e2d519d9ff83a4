"""One step of an actor: what it sends to the server, and what came back."""

from __future__ import annotations

import asyncio
import functools
import gc
import json
import re
import sysconfig
import time
from asyncio import AbstractEventLoop
from dataclasses import dataclass, field
from pathlib import Path
from types import AsyncGeneratorType, CodeType, CoroutineType, FrameType
from typing import Any

import asgiref
import django
import psycopg
from asgiref.sync import SyncToAsync
from django.db import models
from django.db.transaction import TransactionManagementError
from psycopg import Binary
from psycopg.sql import Composable
from psycopg.types.json import Json, Jsonb

from django_lockstep.errors import sqlstate_of
from django_lockstep.lab.explorer.effects.counted import Counts
from django_lockstep.lab.explorer.effects.statements import Statement

_SAVEPOINT_NAME = re.compile(r'"?s\d+_x\d+"?')
_SPACE = re.compile(r"\s+")


@dataclass(slots=True, kw_only=True)
class Operation:
    """What an actor is about to send, and afterwards its result."""

    alias: str
    """The database."""
    pid: int
    """The server process of the actor's connection."""
    sql: str
    """The statement with placeholders; COMMIT and ROLLBACK where the driver sends them by itself."""
    params: Any = None
    """Its parameters; a list of them where ``many``."""
    many: bool = False
    """Whether it is sent once for each of several sets of parameters."""
    in_transaction: bool = False
    """Whether a transaction was open before it."""
    autocommit: bool = True
    """Whether it commits by itself where no transaction is open."""
    isolation: str = "read committed"
    """The isolation level that a transaction begun by it would have."""
    read_only: bool = False
    """Whether that transaction would be read-only."""
    statement: Statement | None = None
    """Its parsed `Statement`, once it was parsed."""
    signature: str | None = None
    """What is compared from run to run, once it was computed."""
    origin: Origin | None = None
    """The line of the user's code that sends it."""
    error: BaseException | None = None
    """What it raised."""
    ends_idle: bool = True
    """Whether no transaction was open after it."""
    may_catch: bool = False
    """Whether it may call a function that catches errors, and so gives up locks on what it has touched."""
    unordered_locks: frozenset[str] = frozenset()
    """Tables of which it has locked several rows, in an order that the server has chosen."""
    several_locks: frozenset[str] = frozenset()
    """Tables of which its transaction has locked several rows by now, in whatever order."""
    uncounted: bool = False
    """Whether the server could not be asked."""
    counts: Counts | None = None
    """What the server counted; None where it was not asked."""
    rows: int | None = None
    """Rows returned or changed; None where the server did not say."""
    numbered: tuple[str, ...] = ()
    """The keys that an INSERT returned."""
    numbered_in: int = 0
    """The OID of the table that they are keys of."""
    values: tuple[dict[str, str | None], ...] = field(default=())
    """The first rows returned, where the run keeps them."""

    @property
    def arguments(self) -> tuple[str, ...]:
        """Its parameters as text; none where it has several sets of them."""
        values = self.params if isinstance(self.params, list | tuple) and not self.many else ()
        return tuple("NULL" if value is None else value_text(value) for value in values)

    @property
    def refused(self) -> bool:
        """Whether it was refused a lock."""
        return self.error is not None and sqlstate_of(self.error) == "55P03"

    @property
    def was_not_run(self) -> bool:
        """Whether it was refused because its transaction had failed before, so that it has done nothing."""
        error = self.error
        return isinstance(error, TransactionManagementError) or (error is not None and sqlstate_of(error) == "25P02")

    @property
    def found_row_changed(self) -> bool:
        """Whether it was refused a row that was changed after its snapshot; not because of a read-write conflict."""
        refused = self.error is not None and sqlstate_of(self.error) == "40001"
        # Of such a conflict the server tells a "Reason code", in every language.
        return refused and getattr(self._diagnosis, "message_detail", None) is None

    @property
    def constraint(self) -> str:
        """The name of the constraint that its error is about; empty if it is about none."""
        return getattr(self._diagnosis, "constraint_name", None) or ""

    @property
    def _diagnosis(self) -> Any:
        return getattr(self.error, "diag", None) or getattr(getattr(self.error, "__cause__", None), "diag", None)

    @property
    def template(self) -> str:
        """The statement without what differs from run to run: white space and names of savepoints."""
        return _normalise(self.sql)


def value_text(value: Any) -> str:
    """Return a parameter, or what the driver makes of a returned value, as text: the same for equal values."""
    if isinstance(value, Json | Jsonb):
        return json.dumps(value.obj, sort_keys=True, default=str)
    content = value.obj if isinstance(value, Binary) else value
    return str(bytes(content) if isinstance(content, memoryview | bytearray) else content)


@functools.lru_cache(maxsize=1024)
def _normalise(sql: str) -> str:
    return _SPACE.sub(" ", _SAVEPOINT_NAME.sub("savepoint", sql)).strip()


TOKEN = re.compile(
    r"""(?P<comment>--[^\r\n]*|/\*)
      | (?P<escaped>[eE]'(?:[^'\\]|\\.|'')*(?:'|\Z))
      | (?P<plain>'(?:[^']|'')*(?:'|\Z))
      | (?P<name>"(?:[^"]|"")*(?:"|\Z))
      | (?P<dollar>\$(?P<tag>(?:[^\W\d]\w*)?)\$(?P<body>.*?)(?:\$(?P=tag)\$|\Z))
      | [^\W\d][\w$]*""",  # a name may contain dollars, and end in what is E before a string
    re.DOTALL | re.VERBOSE,
)
"""Comments (of one in a block the beginning), strings and names in SQL."""
_EDGE = re.compile(r"/\*|\*/")
_PARAMETER = re.compile(r"%(?:%|(\(\w+\))?(?P<kind>[sbt]))")


def text_of(query: Any, driver: Any) -> str:
    """Return the text of a query that a cursor was given, without comments: tracers put another id into each one.

    A comment with a parameter stays, because the driver counts that. ``driver`` is the driver's connection.
    """
    sql = query.as_string(driver) if isinstance(query, Composable) else query
    sql = sql.decode(errors="replace") if isinstance(sql, bytes) else str(sql)
    if "--" not in sql and "/*" not in sql:
        return sql
    parts, begun, place = [], 0, 0
    while token := TOKEN.search(sql, place):
        place = token.end()
        if not (comment := token["comment"]):
            continue
        if comment == "/*":
            place = _end_of_block(sql, token.start())
        if not any(match["kind"] for match in _PARAMETER.finditer(sql, token.start(), place)):
            parts.append(sql[begun : token.start()].strip())
            begun = place
    return " ".join(filter(None, [*parts, sql[begun:].strip()]))


def _end_of_block(sql: str, start: int) -> int:
    depth = 0
    for edge in _EDGE.finditer(sql, start):
        depth += 1 if edge[0] == "/*" else -1
        if not depth:
            return edge.end()
    return len(sql)


Origin = tuple[CodeType, int]
"""A line of code: cheap to note, formatted by `line_of`."""

_LIBRARY = Path(__file__).parents[3]
_OURS = tuple(f"{path}/" for path in (_LIBRARY, *(Path(package.__path__[0]) for package in (django, psycopg, asgiref))))
_PYTHON = sysconfig.get_paths()["stdlib"] + "/"
INSTALLED = tuple({f"{sysconfig.get_paths()[name]}/" for name in ("purelib", "platlib")})
"""The folders of installed packages."""


def is_users(code: CodeType) -> bool:
    """Whether it is the user's code, and does not hide in tracebacks as pytest has it (``__tracebackhide__``)."""
    return _is_users_file(code.co_filename) and "__tracebackhide__" not in code.co_varnames


@functools.lru_cache(maxsize=4096)
def _is_users_file(filename: str) -> bool:
    """Whether the file belongs neither to Django, the driver, this library nor Python itself."""
    of_python = filename.startswith(_PYTHON) and not filename.startswith(INSTALLED)
    return not (of_python or filename.startswith(_OURS) or filename.startswith("<"))


def caller_of(cursor: object, frame: FrameType | None) -> FrameType | None:
    """Return the frame that called the method of the cursor in which this one is.

    Execute wrappers and a backend's cursor may be the user's code, too, but send every statement.
    """
    while frame is not None and frame.f_locals.get("self") is not cursor:
        frame = frame.f_back
    while frame is not None and frame.f_locals.get("self") is cursor:
        frame = frame.f_back
    return frame


def sent_from(frame: FrameType | None) -> Origin | None:
    """Return the innermost line of the user's code on this stack, or in the coroutine that awaits what it does.

    That of a model's own ``save()`` only where no other has called it.
    """
    override: Origin | None = None
    while frame is not None:
        if is_users(frame.f_code):
            if not is_override(frame):
                return frame.f_code, frame.f_lineno
            override = override or (frame.f_code, frame.f_lineno)
        elif frame.f_code is _AWAITED and (origin := _awaited_from(frame.f_locals["loop"], frame.f_locals["args"])):
            return origin
        frame = frame.f_back
    return override


def is_override(frame: FrameType) -> bool:
    """Whether it is a model's own ``save()`` or ``delete()``, whose line says less than that of its caller."""
    name = frame.f_code.co_name
    return name in {"save", "delete"} and isinstance(frame.f_locals.get("self"), models.Model)


_AWAITED = SyncToAsync.thread_handler.__code__
"""Runs a function for a coroutine in a thread: the coroutine is suspended, and on no thread's stack."""
_MOST_SWITCHES = 1000


def _awaited_from(loop: AbstractEventLoop, call: tuple[object, ...]) -> Origin | None:
    """Return the innermost line of the user's code that awaits this call of `sync_to_async`."""
    for _ in range(_MOST_SWITCHES):
        stacks = [_coroutine_frames(task.get_coro()) for task in asyncio.all_tasks(loop)]
        own = [stack for stack in stacks if stack and stack[0].f_locals.get("child") in call]
        if own or all(stacks):
            frames = (frame for stack in own for frame in stack if is_users(frame.f_code))
            return next(((frame.f_code, frame.f_lineno) for frame in frames), None)
        time.sleep(0)  # the loop's thread has begun the call and is on its way to await it
    return None


def _coroutine_frames(awaited: Any) -> list[FrameType]:
    """Return the frames of a coroutine and of those that it awaits, innermost first; nothing while it runs."""
    frames: list[FrameType] = []
    while awaited is not None:
        prefix = {CoroutineType: "cr", AsyncGeneratorType: "ag"}.get(type(awaited))
        if prefix is None:
            # What `async for` awaits only refers to the generator. At the end of the chain is a future.
            generators = [part for part in gc.get_referents(awaited) if isinstance(part, AsyncGeneratorType)]
            if not generators:
                return frames
            awaited = generators[0]
        elif (frame := getattr(awaited, f"{prefix}_frame")) is None:
            break  # it has just ended
        else:
            frames.insert(0, frame)
            awaited = getattr(awaited, f"{prefix}_await")
    return []


def raised_at(error: BaseException) -> Origin | None:
    """Return the innermost line of the user's code in the error's traceback."""
    origin, traceback = None, error.__traceback__
    while traceback is not None:
        if is_users(traceback.tb_frame.f_code):
            origin = traceback.tb_frame.f_code, traceback.tb_lineno
        traceback = traceback.tb_next
    return origin


def line_of(origin: Origin | None) -> str:
    """Return the line as ``shows/booking.py:12``, relative to the project's folder or to that of installed packages."""
    if origin is None:
        return ""
    code, line = origin
    return f"{shown_path(code.co_filename)}:{line}"


_named_roots: list[Path] = []


def name_project_root(folder: Path) -> None:
    """Have paths shown relative to this folder, wherever in the project the process was started."""
    _named_roots[:] = [folder]
    shown_path.cache_clear()


def project_root() -> Path:
    """Return the project's folder: the current one, unless another one is named."""
    return _named_roots[0] if _named_roots else Path.cwd()


@functools.lru_cache(maxsize=4096)
def shown_path(filename: str) -> str:
    """Return the path relative to the folder of installed packages, or to the project's."""
    # The root comes last: a virtual environment may be inside of it.
    folders = (folder for folder in (*INSTALLED, f"{project_root()}/") if filename.startswith(folder))
    return filename.removeprefix(next(folders, ""))
