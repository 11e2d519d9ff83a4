"""The library's settings, read when they are needed and never written back."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from django.conf import settings

__all__ = ["retry_waits", "without_retry_waits"]

_taken_out: ContextVar[bool] = ContextVar("retry waits are taken out", default=False)


def retry_waits() -> bool:
    """``LOCKSTEP_RETRY_WAITS`` (default True): False takes the pauses out of every retry, for tests."""
    return not _taken_out.get() and bool(getattr(settings, "LOCKSTEP_RETRY_WAITS", True))


@contextmanager
def without_retry_waits() -> Iterator[None]:
    """Take the pauses out of the retries that this thread, or this coroutine, makes inside the block.

    For who decides by other means than time which of two conflicting transactions goes first. Attempts are counted,
    time-outs hold, and the signal `retrying` is sent, as ever.
    """
    token = _taken_out.set(True)
    try:
        yield
    finally:
        _taken_out.reset(token)
