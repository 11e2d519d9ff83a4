"""Actors: each has a thread and connections of its own, and stops before every step."""

from __future__ import annotations

import _thread
import ctypes
import inspect
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from asgiref.sync import async_to_sync
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg.pq import TransactionStatus

from django_lockstep.lab.explorer.driver.hooks import Gate, Hooks
from django_lockstep.lab.explorer.driver.trace import Event
from django_lockstep.lab.explorer.effects.operations import Operation
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
        self._interrupt: ThreadInterrupt | None = None
        self._settings = settings
        self._events = events
        self._tasks: SimpleQueue[tuple[Callable[[Any], Any], Any] | threading.Event | None] = SimpleQueue()
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

    def interrupt(self) -> None:
        """Raise `Abandoned` in the thread, for code that reaches no gate, unless it waits in the system."""
        if self._interrupt is not None:
            self._interrupt.wait_until_over()
        if self.thread.ident is not None:
            self._interrupt = ThreadInterrupt(self.thread.ident)

    def spare(self) -> bool:
        """Wait until no interrupt is on its way that would end the next run of an actor that is done.

        Returns False if the thread does not answer: an interrupt has ended it.
        """
        if self._interrupt is None:
            return True
        self._interrupt.wait_until_over()
        self._interrupt = None
        answered = threading.Event()
        self._tasks.put(answered)
        return answered.wait(_TIMEOUT)

    def stop(self) -> None:
        """End the thread after its current task."""
        self._tasks.put(None)

    def stack(self) -> str:
        """Return the innermost line of code that the actor is at."""
        frame = sys._current_frames().get(self.thread.ident or 0)
        summary = traceback.extract_stack(frame)[-1:] if frame else []
        return "".join(f"{line.filename}:{line.lineno} in {line.name}: {line.line}" for line in summary)

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
            while self._do_next():
                pass
        finally:
            for hooks in self.hooks.values():
                hooks.remove()
            connections.close_all()
            self.error = None  # its traceback keeps what the code held alive, half-opened sessions among it

    def _do_next(self) -> bool:
        """Wait for a task, and do it; False if there is none to come."""
        try:
            if (task := self._tasks.get()) is None:
                return False
            if isinstance(task, threading.Event):
                task.set()
                return True
            try:
                self._run_task(*task)
                self._leave()
            except Abandoned:  # interrupted again, on the way out
                self._leave()
            finally:
                self._events.put((self.index, "done", None))
        except Abandoned:  # interrupted too late, between two tasks
            self._leave()
        return True

    def _run_task(self, function: Callable[[Any], Any], argument: Any) -> None:
        try:
            # An ``async def``, also as a method, a partial, or ``__call__``: Django's asynchronous ORM then comes back
            # to this thread, and so to its connections.
            is_async = any(map(inspect.iscoroutinefunction, (function, getattr(function, "__call__", None))))  # noqa: B004
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
                self._close(alias)
        self.session_changed = False

    def _close(self, alias: str) -> None:
        hooks = self.hooks[alias]
        hooks.remove()
        # Django does not end a session that it thinks it has closed, which an interrupt makes it think.
        hooks.driver.close()
        hooks.wrapper.close()
        with suppress(AttributeError):
            del connections[alias]  # a wrapper closed inside atomic() would remember that for ever
        del self.hooks[alias]  # last, so that an interrupt above repeats the whole


_TIMEOUT = 2.0
"""Seconds that an idle thread may take to answer."""

# Interrupts of another thread, for code under test that sends no statement.

_OFFER = 0.08
"""Seconds for which a thread may take an interrupt: as long as it waits in the system it cannot."""


class ThreadInterrupt:
    """Raises `Abandoned` in a thread at its next byte code, if it comes to one in time.

    Afterwards it is withdrawn. Python 3.11 lets no function of any thread begin that is traced, as by coverage and
    debuggers, while an interrupt waits for its thread; and a late one would hit what the thread does next.
    """

    def __init__(self, thread: int) -> None:
        self._thread = thread
        self._over = _thread.allocate_lock()
        self._over.acquire()
        # Not by `threading`, whose threads are traced too: this one has to go on in any case.
        _thread.start_new_thread(self._offer, ())

    def wait_until_over(self) -> None:
        """Wait until it was raised or is withdrawn."""
        with self._over:
            pass

    def _offer(self) -> None:
        try:
            _raise_in(self._thread, Abandoned)
            time.sleep(_OFFER)
            _raise_in(self._thread, None)
            # Only a thread that takes an interrupt ends the state in which the interpreter looks for one.
            _raise_in(_thread.get_ident(), Abandoned)
            for _ in range(100):
                time.sleep(0)
        except Abandoned:
            pass
        finally:
            self._over.release()


def _raise_in(thread: int, exception: type[BaseException] | None) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread), None if exception is None else ctypes.py_object(exception)
    )
