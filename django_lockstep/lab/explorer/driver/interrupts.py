"""Interrupts of another thread, for code under test that sends no statement."""

from __future__ import annotations

import _thread
import ctypes
import time

__all__ = ["Interrupt"]

_OFFER = 0.08
"""Seconds for which a thread may take an interrupt: as long as it waits in the system it cannot."""


class Interrupt:
    """Raises an exception in a thread at its next byte code, if it comes to one in time.

    Afterwards it is withdrawn. Python 3.11 lets no function of any thread begin that is traced, as by coverage and
    debuggers, while an interrupt waits for its thread; and a late one would hit what the thread does next.
    """

    def __init__(self, thread: int, exception: type[BaseException]) -> None:
        self._thread = thread
        self._exception = exception
        self._over = _thread.allocate_lock()
        self._over.acquire()
        # Not by `threading`, whose threads are traced too: this one has to go on in any case.
        _thread.start_new_thread(self._offer, ())

    def wait_until_over(self) -> None:
        """Wait until the exception was raised or is withdrawn."""
        with self._over:
            pass

    def _offer(self) -> None:
        try:
            _raise_in(self._thread, self._exception)
            time.sleep(_OFFER)
            _raise_in(self._thread, None)
            # Only a thread that takes an interrupt ends the state in which the interpreter looks for one.
            _raise_in(_thread.get_ident(), self._exception)
            for _ in range(100):
                time.sleep(0)
        except self._exception:
            pass
        finally:
            self._over.release()


def _raise_in(thread: int, exception: type[BaseException] | None) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread), None if exception is None else ctypes.py_object(exception)
    )
