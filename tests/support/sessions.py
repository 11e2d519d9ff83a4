"""Second sessions for tests: real connections in threads of their own, driven step by step."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Self, TypeVar

from django.db import connection, connections, transaction
from django.dispatch import Signal

R = TypeVar("R")

PATIENCE = 20.0
"""Seconds after which a test gives up waiting for something that should have happened."""

PAUSE, LONGEST_PAUSE = 0.005, 0.1
"""Seconds between two looks, which are left to what is waited for; the longer, the more of them."""


class Session:
    """One more session: what is run on it runs in one thread, on one connection, in order."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1)
        self.pid: int = self.run(_backend_pid)

    def start(self, function: Callable[..., R], *args: Any, **kwargs: Any) -> "Future[R]":
        """Begin the function and go on; the future tells how it ends."""
        return self._thread.submit(function, *args, **kwargs)

    def run(self, function: Callable[..., R], *args: Any, **kwargs: Any) -> R:
        """Run the function to its end."""
        return self.start(function, *args, **kwargs).result(PATIENCE)

    def begin(self) -> None:
        """Open a transaction that stays open until `end`."""
        self._block = transaction.atomic()
        self.run(self._block.__enter__)

    def end(self) -> None:
        """Commit it."""
        self.run(self._block.__exit__, None, None, None)

    @contextmanager
    def holding(self, function: Callable[..., R], *args: Any, **kwargs: Any) -> Iterator[R]:
        """Run the function in a transaction that stays open for the length of a block."""
        self.begin()
        yield self.run(function, *args, **kwargs)
        self.end()

    def is_blocked(self) -> bool:
        """Whether the server says that this session waits for a lock."""
        return bool(query("SELECT pg_blocking_pids(%s)", self.pid))

    def is_waited_for(self) -> bool:
        """Whether the server says that another one waits for a lock of this session."""
        return bool(query("SELECT true = ANY(SELECT %s = ANY(pg_blocking_pids(pid)) FROM pg_stat_activity)", self.pid))

    def wait_until_blocked(self) -> None:
        """Return as soon as the server says so."""
        until(self.is_blocked, "the session to be blocked")

    def close(self) -> None:
        self.run(connections.close_all)
        self._thread.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Gate:
    """Stops a session right before the first statement that begins with one of the words, until it is opened."""

    def __init__(self, *words: str) -> None:
        self._words = words
        self._reached = threading.Event()
        self._open = threading.Event()

    def __call__(self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        """Serve as an execute wrapper of Django's connection."""
        if sql.startswith(self._words) and not self._reached.is_set():
            self._reached.set()
            self._open.wait(PATIENCE)
        return execute(sql, params, many, context)

    def wait_until_reached(self) -> None:
        if not self._reached.wait(PATIENCE):
            raise TimeoutError(f"no statement began with {self._words}")

    def open(self) -> None:
        self._open.set()


def gated(gate: Gate, function: Callable[..., R], *args: Any) -> R:
    """Run the function with the gate in its session's way."""
    with connection.execute_wrapper(gate):
        return function(*args)


def overtaken(
    session: Session, gate: Gate, meanwhile: Callable[[], object], function: Callable[..., R], *args: Any
) -> R:
    """Run the function in the session; when it has reached the gate, do the other thing, and let it go on."""
    answer: Future[R] = session.start(gated, gate, function, *args)
    gate.wait_until_reached()
    meanwhile()
    gate.open()
    return answer.result(PATIENCE)


def until(condition: Callable[[], bool], what: str, *, patience: float = PATIENCE) -> None:
    """Return as soon as the condition holds."""
    begun = time.monotonic()
    while not condition():
        waited = time.monotonic() - begun
        if waited > patience:
            raise TimeoutError(f"waited {patience} s for {what}")
        # A page is shown in 20 ms: without a pause that grows, looking at it takes the processor from what it shows.
        time.sleep(max(PAUSE, min(waited / 20, LONGEST_PAUSE)))


@contextmanager
def heard(signal: Signal, sender: Any = None) -> Iterator[list[dict[str, Any]]]:
    """Collect what is sent with the signal during a block."""
    messages: list[dict[str, Any]] = []

    def listen(**message: Any) -> None:
        messages.append(message)

    signal.connect(listen, sender)
    try:
        yield messages
    finally:
        signal.disconnect(listen, sender)


def query(sql: str, *params: Any) -> Any:
    """Return the first column of the first row, if there are rows."""
    with connection.cursor() as cursor:
        cursor.execute(sql, params or None)
        return cursor.fetchone()[0] if cursor.description else None


def sessions() -> int:
    return int(query("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"))


ADVISORY_LOCKS = (
    "pg_locks WHERE locktype = 'advisory'"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
"""The advisory locks of this database: ``pg_locks`` shows those of the whole server."""


def is_as_it_was(setting: str) -> bool:
    """Whether the session has the setting with which it began: the server's, the role's or the connection's own."""
    return bool(query("SELECT setting = reset_val FROM pg_settings WHERE name = %s", setting))


def all_others_are_idle() -> bool:
    """Whether no other session of this database does something, or has a transaction open."""
    others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    return not query(f"SELECT count(*) {others} AND backend_type = 'client backend' AND state <> 'idle'")


def _backend_pid() -> int:
    return int(query("SELECT pg_backend_pid()"))
