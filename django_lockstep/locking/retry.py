"""Retries: a whole transaction again, from outside, after a pause that grows and varies.

The pauses follow "full jitter": a random time between zero and a bound that doubles with each attempt (M. Brooker,
"Exponential Backoff and Jitter", AWS Architecture Blog, 2015), so that the losers of one conflict do not collide again.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, ParamSpec, TypeVar, overload

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.db import connections
from django.db.transaction import TransactionManagementError
from django.dispatch import Signal

from django_lockstep.errors import (
    STALE_ERRORS,
    ConcurrencyError,
    DeadlockDetected,
    LockNotAvailable,
    RetriesExhausted,
    SerializationFailure,
    raise_if_committed,
    translated,
)
from django_lockstep.locking.conf import retry_waits
from django_lockstep.locking.decorating import refuse_generator
from django_lockstep.locking.durations import Duration, seconds
from django_lockstep.locking.transactions import has_autocommit, in_own_atomic

P = ParamSpec("P")
R = TypeVar("R")

CONFLICTS: tuple[type[Exception], ...] = (*STALE_ERRORS, LockNotAvailable, DeadlockDetected, SerializationFailure)
"""Errors worth another attempt by default; django-concurrency's ``RecordModifiedError`` is among them."""

retrying = Signal()
"""Sent before each pause, outside any transaction, with ``error``, ``attempt`` (from 1) and ``wait`` (seconds)."""

logger = logging.getLogger("lockstep.locking")


@dataclass(frozen=True, kw_only=True, slots=True)
class Retry:
    """A retry policy, as a decorator and as an iterator; made by `retry_on_conflict`."""

    attempts: int
    """The number of attempts, the first one included."""
    wait_initial: float
    """Upper bound of the first pause, in seconds."""
    wait_max: float
    """Upper bound of every pause, in seconds."""
    timeout: float | None
    """Seconds after which no further attempt starts."""
    on: tuple[type[Exception], ...]
    """Errors that another attempt may cure."""
    using: str | None
    """The database whose open transaction forbids a retry; None for any, another name for none."""

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return the function with retries around it; a coroutine function stays one."""
        refuse_generator(function, decorator="retry_on_conflict")

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            for attempt in self:
                with attempt:
                    return function(*args, **kwargs)
            raise AssertionError("an attempt either returns or raises")

        retried = self._around_coroutine(function) if iscoroutinefunction(function) else call
        vars(retried)["retry_policy"] = self
        return retried

    def __iter__(self) -> Iterator[Attempt]:
        """Yield attempts until one of them ends without a conflict; see `retry_on_conflict`."""
        return _Attempts(self)

    def __aiter__(self) -> AsyncIterator[Attempt]:
        """Yield the same to ``async for``."""
        return _Attempts(self)

    def _around_coroutine(self, function: Callable[P, Any]) -> Callable[P, Any]:
        @functools.wraps(function)
        async def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            async for attempt in self:
                with attempt:
                    return await function(*args, **kwargs)
            raise AssertionError("an attempt either returns or raises")

        return call

    def refuse_open_transaction(self) -> None:
        """Raise ``TransactionManagementError`` where attempts would share a transaction.

        That is inside ``atomic()``, except the block of a ``TestCase``, and where autocommit is off.
        """
        for connection in connections.all(initialized_only=True):
            if self.using not in {None, connection.alias}:
                continue
            if in_own_atomic(connection):
                raise TransactionManagementError(
                    f"A retry runs whole transactions, but one is open on database {connection.alias!r}. Move the "
                    "retry outside of atomic() (and of ATOMIC_REQUESTS: see non_atomic_requests)."
                )
            if not (connection.in_atomic_block or has_autocommit(connection)):
                raise TransactionManagementError(
                    f"A retry runs whole transactions, but autocommit is off on database {connection.alias!r}, so that "
                    "all attempts would be in one. Turn it on, and open transactions with atomic()."
                )


def policy_of(function: object) -> Retry | None:
    """Return the policy that a function is decorated with, directly or under other decorators; None if it is not."""
    policy = getattr(function, "retry_policy", None)
    return policy if isinstance(policy, Retry) else None


class Attempt:
    """One attempt, as a context manager that keeps a conflict for its iterator instead of raising it."""

    def __init__(self, on: tuple[type[Exception], ...]) -> None:
        self._on = on
        self.error: Exception | None = None

    def __enter__(self) -> Attempt:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        """Keep an error that another attempt may cure, translated; let every other error pass.

        Raises `CommittedThenFailed` instead of keeping what a callback of ``on_commit`` raised.
        """
        if not isinstance(error, Exception):
            return False
        translation = translated(error)
        if not isinstance(translation, self._on):
            return False
        raise_if_committed(error)
        if translation is not error:
            translation.__cause__ = error
        self.error = translation
        return True


def report_conflict(error: Exception, *, attempt: int, wait: float) -> None:
    """Log a conflict and send `retrying`; the next attempt starts in ``wait`` seconds."""
    logger.debug("attempt %d met %s, next in %.3f s", attempt, type(error).__name__, wait)
    retrying.send(sender=type(error), error=error, attempt=attempt, wait=wait)


@dataclass(slots=True)
class _Attempts:
    """The attempts of one call, for sync and for async code; no pause is inside of an attempt, so it holds no lock."""

    policy: Retry
    count: int = 0
    last: Attempt | None = None
    start: float = field(default_factory=time.monotonic)

    def __iter__(self) -> _Attempts:
        return self

    def __aiter__(self) -> _Attempts:
        return self

    def __next__(self) -> Attempt:
        if self.last is None:
            self.policy.refuse_open_transaction()
        elif self.last.error is None:
            raise StopIteration
        else:
            time.sleep(self._pause_after(self.last.error))
        return self._start_attempt()

    async def __anext__(self) -> Attempt:
        if self.last is None:
            # Async code's connections belong to the thread that serves its ORM calls.
            await sync_to_async(self.policy.refuse_open_transaction)()
        elif self.last.error is None:
            raise StopAsyncIteration
        else:
            await asyncio.sleep(self._pause_after(self.last.error))
        return self._start_attempt()

    def _start_attempt(self) -> Attempt:
        self.count += 1
        self.last = Attempt(self.policy.on)
        return self.last

    def _pause_after(self, error: Exception) -> float:
        """Return the seconds to wait before the next attempt, or raise `RetriesExhausted` from the error."""
        elapsed = time.monotonic() - self.start
        bound = min(self.policy.wait_max, self.policy.wait_initial * 2 ** min(self.count - 1, 62))
        wait = random.uniform(0, bound) if retry_waits() else 0.0  # noqa: S311 - jitter is no secret
        # An attempt that would start after the timeout is not waited for.
        late = self.policy.timeout is not None and elapsed + wait >= self.policy.timeout
        if late or self.count >= self.policy.attempts:
            # Copied, because handlers see only RetriesExhausted, and must still know which row it was.
            names = ("model", "pk", "expected", "actual", "sqlstate") if isinstance(error, ConcurrencyError) else ()
            raise RetriesExhausted(
                f"Gave up after {self.count} attempts and {elapsed:.3f} s, the last one with {type(error).__name__}",
                attempts=self.count,
                elapsed=elapsed,
                **{name: getattr(error, name) for name in names},
            ) from error
        report_conflict(error, attempt=self.count, wait=wait)
        return wait


@overload
def retry_on_conflict(function: Callable[P, R], /) -> Callable[P, R]: ...


@overload
def retry_on_conflict(
    function: Literal[None] = None,
    /,
    *,
    attempts: int = ...,
    wait_initial: Duration = ...,
    wait_max: Duration = ...,
    timeout: Duration | None = ...,
    on: type[Exception] | tuple[type[Exception], ...] = ...,
    using: str | None = ...,
) -> Retry: ...


def retry_on_conflict(
    function: Callable[P, R] | None = None,
    /,
    *,
    attempts: int = 10,
    wait_initial: Duration = 0.01,
    wait_max: Duration = 1.0,
    timeout: Duration | None = None,
    on: type[Exception] | tuple[type[Exception], ...] = CONFLICTS,
    using: str | None = None,
) -> Callable[P, R] | Retry:
    """Run a whole transaction again when it met a conflict.

    Decorator, bare or with arguments, for functions and coroutine functions::

        @retry_on_conflict(attempts=5)
        def book(): ...

    and iterator, to repeat a part of a function (``async for`` in a coroutine)::

        for attempt in retry_on_conflict():
            with attempt, transaction.atomic():
                ...

    ``attempts`` counts the first one; the pause before the next is random between zero and ``wait_initial`` doubled
    with each attempt, at most ``wait_max``; after ``timeout`` no attempt starts (each a timedelta or seconds). ``on``
    lists the errors worth another attempt; errors of the driver count as what they are translated to. The repeated code
    must read again everything it decides on. The signal `retrying` is sent for each conflict; ``LOCKSTEP_RETRY_WAITS =
    False`` removes the pauses in tests.

    Raises `RetriesExhausted` with the last error as ``__cause__``; `CommittedThenFailed` for a conflict in a callback
    of ``on_commit``, which is not repeated; ``TransactionManagementError`` inside an open ``atomic()`` or with
    autocommit off (on ``using``, or on any database), where a repetition would see the same snapshot and locks;
    ``ConnectionDoesNotExist`` for an unknown ``using``; ``ValueError`` for attempts below
    one, ``TypeError`` for a generator function.
    """
    if isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < 1:
        raise ValueError(f"attempts must be a positive integer, not {attempts!r}")
    policy = Retry(
        attempts=attempts,
        wait_initial=seconds(wait_initial, name="wait_initial"),
        wait_max=seconds(wait_max, name="wait_max"),
        timeout=None if timeout is None else seconds(timeout, name="timeout"),
        on=on if isinstance(on, tuple) else (on,),
        using=None if using is None else connections[using].alias,  # looked up, so that an unknown one is an error
    )
    return policy if function is None else policy(function)
