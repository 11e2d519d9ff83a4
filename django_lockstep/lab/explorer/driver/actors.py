"""Actors: each has a thread and connections of its own, and stops before every step."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from asgiref.sync import async_to_sync, iscoroutinefunction
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg.pq import TransactionStatus

from django_lockstep.lab.explorer.driver.hooks import Gate, Hooks
from django_lockstep.lab.explorer.driver.trace import Event
from django_lockstep.lab.explorer.effects.operations import Operation, is_users, shown_path
from django_lockstep.lab.explorer.errors import Abandoned
from django_lockstep.locking.conf import without_retry_waits


class Actor(Gate):
    """One actor: the controller calls `start` and `go`, the rest happens in the actor's own thread."""

    def __init__(self, index: int, name: str, *, events: SimpleQueue[Event], settings: str) -> None:
        self.index = index
        self.name = name
        self.waits = False
        """Set by the controller while the server says that the actor waits; the actor then holds when its step
        returns."""
        self.abandoned = False
        self.error: BaseException | None = None
        self.result: Any = None
        self.hooks: dict[str, Hooks] = {}
        self.cannot_set = False
        self.session_changed = False
        """Set by the controller before a statement that may change the session beyond its transaction."""
        self._settings = settings
        self._events = events
        self._tasks: SimpleQueue[tuple[Callable[[Any], Any], Any] | None] = SimpleQueue()
        self._go: SimpleQueue[str | None] = SimpleQueue()
        # A daemon: an actor that waits for something that never comes must not keep the process from ending.
        self.thread = threading.Thread(target=self._work, daemon=True, name=f"race actor {name}")
        self.thread.start()

    # Called by the controller

    def start(self, function: Callable[[Any], Any], argument: Any) -> None:
        """Start the function in the actor's thread; it stops at its first gate."""
        self.error = self.result = None
        self.abandoned = self.waits = False
        self._go = SimpleQueue()  # an abandoned run leaves its last message behind
        self._tasks.put((function, argument))

    def go(self, out_of_band: str | None = None) -> None:
        """Let the actor pass its gate; ``out_of_band`` is a statement that it sends first, past the gate."""
        self._go.put(out_of_band)

    def abandon(self) -> None:
        """Unwind the actor from wherever it is; further gates do not stop it."""
        self.abandoned = True
        self._go.put(None)

    def stop(self) -> None:
        """End the thread after its current task."""
        self._tasks.put(None)

    def stack(self) -> str:
        """Return the innermost line of the user's code that the actor is at; of any code where there is none."""
        frame = sys._current_frames().get(self.thread.ident or 0)
        frames = [frame for frame, _ in traceback.walk_stack(frame)] if frame else []
        innermost = next((frame for frame in frames if is_users(frame.f_code)), frame)
        summary = traceback.extract_stack(innermost)[-1:] if innermost else []
        return "".join(f"{shown_path(line.filename)}:{line.lineno} in {line.name}: {line.line}" for line in summary)

    # Called in the actor's thread

    def connect(self, alias: str) -> None:
        connections[alias].ensure_connection()

    def connected(self, wrapper: BaseDatabaseWrapper) -> None:
        """Install hooks on a connection that the actor has just opened."""
        if wrapper.alias in self.hooks:
            self.hooks.pop(wrapper.alias).remove()
        hooks = Hooks(wrapper, self, counts=True)
        # Each of them, also after one that this role may not set.
        taken = [hooks.send_out_of_band(part) for part in self._settings.split(";")]
        self.cannot_set = not all(taken)
        if hooks.counters is not None:
            hooks.counters.begin()
        self.hooks[wrapper.alias] = hooks

    def before(self, operation: Operation) -> None:
        if self.abandoned:
            return self._refuse(operation)
        self._events.put((self.index, "gate", operation))
        out_of_band = self._go.get()
        if self.abandoned:
            return self._refuse(operation)
        if out_of_band and not self.cannot_set:
            self.hooks[operation.alias].send_out_of_band(out_of_band)
        return None

    def _refuse(self, operation: Operation) -> None:
        # While it unwinds, the code may end its transactions and do nothing else.
        if not operation.sql.startswith("ROLLBACK"):
            raise Abandoned

    def after(self, operation: Operation) -> None:
        """Hold if the step had to wait, so that woken actors go on one after the other."""
        if self.waits and not self.abandoned:
            self._events.put((self.index, "woken", operation))
            self._go.get()
            self.waits = False
            if self.abandoned:
                raise Abandoned

    def _work(self) -> None:
        try:
            while (task := self._tasks.get()) is not None:
                try:
                    self._run_task(*task)
                    self._leave()
                finally:
                    self._events.put((self.index, "done", None))
        finally:
            for hooks in self.hooks.values():
                hooks.remove()
            connections.close_all()
            self.error = None  # its traceback keeps what the code held alive

    def _run_task(self, function: Callable[[Any], Any], argument: Any) -> None:
        try:
            # An ``async def``, also as a method, a partial, or ``__call__``: Django's asynchronous ORM then comes back
            # to this thread, and so to its connections.
            is_async = any(map(iscoroutinefunction, (function, getattr(function, "__call__", None))))  # noqa: B004
            called = async_to_sync(function) if is_async else function
            with without_retry_waits():  # the schedule decides which actor goes first
                self.result = called(argument)
        except BaseException as error:  # noqa: BLE001 - whatever an actor raises is an outcome
            self.error = error

    def _leave(self) -> None:
        """Close connections that the next run cannot use: with an open transaction, or a changed session."""
        for alias, hooks in list(self.hooks.items()):
            wrapper = hooks.wrapper
            idle = hooks.driver.info.transaction_status is TransactionStatus.IDLE
            if not (idle and wrapper.autocommit) or wrapper.in_atomic_block or self.session_changed:
                del self.hooks[alias]
                hooks.remove()
                wrapper.close()
                with suppress(AttributeError):
                    del connections[alias]  # a wrapper closed inside atomic() would remember that for ever
        self.session_changed = False
