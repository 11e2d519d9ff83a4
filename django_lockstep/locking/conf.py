"""The library's settings, read when they are needed."""

from collections.abc import Iterator
from contextvars import ContextVar

from django.conf import settings

from django_lockstep.locking.decorating import block

_taken_out: ContextVar[bool] = ContextVar("retry waits are taken out", default=False)


def retry_waits() -> bool:
    """``LOCKSTEP_RETRY_WAITS`` (default True): False removes the pauses of every retry, for tests."""
    return not _taken_out.get() and bool(getattr(settings, "LOCKSTEP_RETRY_WAITS", True))


@block
def without_retry_waits() -> Iterator[None]:
    """Remove the pauses of retries that this thread or coroutine makes inside the block.

    For callers that decide the order of conflicting transactions themselves, such as the explorer. Attempts are still
    counted, timeouts apply, and the signal `retrying` is sent.
    """
    token = _taken_out.set(True)
    try:
        yield
    finally:
        _taken_out.reset(token)
