"""The handle: a holder's operations on its lease."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

from asgiref.sync import sync_to_async
from django.db import InterfaceError, OperationalError

from django_lockstep.leases.errors import LeaseLost
from django_lockstep.leases.heartbeats import Heartbeat, call_apart
from django_lockstep.locking.durations import Duration, seconds
from django_lockstep.stores.protocol import LeaseStore, lease_waits, pauses, timeout_of
from django_lockstep.stores.terms import Claim, Grant, Holder, valid_json, valid_key

Callback = Callable[["LeaseHandle"], object]
"""Called once, with the handle: in the thread that detects the event, or one of its own beside the heartbeat's."""

logger = logging.getLogger("lockstep.leases")

_DRIFT, _DELAY = 0.01, 0.002
"""By how much the database's clock may run faster than ours, and seconds in addition: the margin that S. Sanfilippo's
"Distributed Locks with Redis" subtracts from a validity time."""

_TAKEN = "another holder took it, or it was released by force"


class LeaseHandle:
    """A lease that this process holds; made by ``Lease.objects.acquire`` and `lease`.

    As a context manager it releases the lease at the end of the outermost block. It belongs to the process that
    acquired it: in a forked process it counts as lost and changes nothing. Its methods may be called from every thread:
    ``refresh`` and ``release`` only outside transactions, ``guard`` only inside one.
    """

    def __init__(self, claim: Claim, grant: Grant, *, store: LeaseStore, on_lost: Callback | None = None) -> None:
        self.key = claim.key
        self.token = grant.token
        """Higher than the tokens of all earlier holders; constant until the end."""
        self.owner = claim.owner
        self.ttl = claim.ttl
        """Seconds for which it is refreshed by default."""
        self.at_least = claim.at_least
        self.acquired_at = grant.since
        """By the database's clock; by the holder's own where the store has none."""
        self.using = store.name
        """Alias of the database, or the store's name."""
        self._store = store
        self._data = grant.data
        self._requested_at = grant.requested_at
        self._deadline = _deadline(grant.requested_at, claim.ttl)
        self._on_lost = on_lost
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._depth = 0
        self._lost = ""
        self._released = False
        self._heartbeat: Heartbeat | None = None
        self._on_danger: Callback | None = None
        self.margin = 0.0
        """Seconds before the end at which `watch` warns."""

    def __repr__(self) -> str:
        return f"<LeaseHandle {self.key!r} token={self.token} owner={self.owner!r}>"

    @property
    def data(self) -> Any:
        """The lease's data, from this holder or an earlier one; every access returns a new copy."""
        return json.loads(self._data)

    def note(self, data: object) -> None:
        """Replace the lease's data, which others and later holders can read, by any JSON value.

        Raises as `refresh` does, ``TypeError`` and ``ValueError`` before any SQL for other data.
        """
        text = valid_json(data)
        self._require(lambda: self._store.note(self.key, self.token, data=text, timeout=timeout_of(self.ttl)))
        self._data = text

    @property
    def remaining(self) -> float:
        """Seconds for which the lease is certainly held, by this process's monotonic clock; sends no query.

        Counted from before the request was sent, less a margin for clock drift.
        """
        return 0.0 if self._why_over() else max(0.0, self._deadline - time.monotonic())

    def check(self) -> None:
        """Raise `LeaseLost` unless the lease is certainly held, as far as this process knows; sends no query."""
        if self.remaining <= 0:
            raise self._loss(self._why_over() or "it was not refreshed in time")

    def refresh(self, ttl: Duration | None = None) -> None:
        """Let the lease expire no earlier than ``ttl`` (default: the one it was acquired with) from now.

        An expired lease is held again if it was not taken over. Raises `LeaseLost`, then and at every further call;
        ``TransactionManagementError`` in a transaction; `LeaseTimedOut` and the driver's errors where the database does
        not answer, after which it may be called again.
        """
        lifetime = self.ttl if ttl is None else seconds(ttl, name="ttl")
        self.renew(lifetime, timeout=timeout_of(self.ttl))

    def renew(self, ttl: float, *, timeout: float) -> None:
        """Refresh within ``timeout`` seconds: a heartbeat has other leases to refresh."""
        requested_at = time.monotonic()
        self._require(lambda: self._store.renew(self.key, self.token, ttl=ttl, timeout=timeout))
        # Never earlier: the store also keeps the later of both expiries.
        self._deadline = max(self._deadline, _deadline(requested_at, ttl))
        if heartbeat := self._heartbeat:
            heartbeat.notice()

    def _require(self, operation: Callable[[], bool]) -> None:
        """Run the operation; if the token no longer holds the lease, mark it as lost and raise `LeaseLost`."""
        if reason := self._why_over():
            raise self._loss(reason)
        if not operation():
            raise self.refuse()

    def release(self) -> bool:
        """Release the lease; False if it was lost or released before, and nothing is changed then.

        With ``at_least`` it stays taken until that time is over. Raises as `refresh` does, but never `LeaseLost`.
        """
        if self._pid != os.getpid():
            return False
        self.stop_heartbeat()
        if self._why_over():
            return False
        released = self._store.release(
            self.key,
            self.token,
            at_least=self.at_least,
            held=time.monotonic() - self._requested_at,
            timeout=timeout_of(self.ttl),
        )
        # Set after the statement: after an error the lease may still be held, and release() may be called again.
        self._released = True
        return released

    def guard(self, *, within: Duration | None = None) -> Mapping[str, Any] | None:
        """Guard the lease until the open transaction ends; see `django_lockstep.leases.guard`.

        On DynamoDB it returns the ``ConditionCheck`` to put into the ``TransactWriteItems`` that it guards.
        """
        if reason := self._why_over():
            raise self._loss(reason)
        limit = None if within is None else seconds(within, name="within")
        return self._store.guard(self.key, self.token, within=limit)

    def refuse(self) -> LeaseLost:
        """Mark the lease as lost, because the store refuses its token; return the error to raise."""
        self.lose(_TAKEN)
        return self._loss(self._lost)

    def start_heartbeat(self) -> None:
        """Refresh the lease at a third of its ttl, until it is released.

        One thread does that for all leases of the process in this store, on a connection of its own. The heartbeat ends
        with the handle's last reference, and with the process. A failed refresh is retried until the lease has expired;
        then, or if another holder took it, it is lost. In the transaction of a ``TestCase``, which other connections
        cannot see, nothing is started.
        """
        self._watch(beats=True)

    def watch(self, on_danger: Callback, *, margin: Duration | None = None) -> None:
        """Call ``on_danger(handle)`` from a thread when fewer than ``margin`` seconds are left (default: ttl / 3).

        This leaves time to stop working; ``on_lost`` is called when it is too late. Called again if a refresh happened
        in between. In the transaction of a ``TestCase`` nothing is started.
        """
        margin = self.ttl / 3 if margin is None else seconds(margin, name="margin")
        self._on_danger, self.margin = on_danger, margin
        self._watch(beats=self._heartbeat is not None and self._heartbeat.beats)

    def _watch(self, *, beats: bool) -> None:
        self.stop_heartbeat()
        # In a TestCase's transaction the heartbeat's own connection could not see the lease.
        if not self._store.is_isolated:
            self._heartbeat = Heartbeat(self, beats=beats)

    def warn(self) -> None:
        self._call(self._on_danger)

    def stop_heartbeat(self) -> None:
        """Stop the heartbeat, and wait for a refresh under way."""
        if self._heartbeat is not None:
            self._heartbeat.stop()
            self._heartbeat = None

    def lose(self, reason: str) -> None:
        """Mark the lease as lost; the first call also calls ``on_lost``."""
        with self._lock:
            # Under the lock, so that of two threads that detect the loss only one calls on_lost.
            earlier_reason, self._lost = self._lost, self._lost or reason
        if not earlier_reason:
            self._call(self._on_lost)

    def _call(self, callback: Callback | None) -> None:
        if callback is not None:
            call_apart(functools.partial(callback, self), key=self.key)

    def __enter__(self) -> LeaseHandle:
        """Begin a block; raise `LeaseLost` where the lease is no longer held."""
        self.check()
        with self._lock:
            self._depth += 1
        # A new tuple: tasks that were started earlier keep their own view.
        _held.set((*_held.get(), self))
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Release the lease at the end of the outermost block; the block's own error takes precedence.

        Where the database cannot be reached the lease is left to expire, with a warning in the log.
        """
        # First: even if the release fails, this block no longer counts as holding the lease. The innermost one leaves.
        open_blocks = [*reversed(_held.get())]
        if self in open_blocks:
            open_blocks.remove(self)
            _held.set(tuple(reversed(open_blocks)))
        if self._pid != os.getpid():
            return
        with self._lock:
            self._depth -= 1
            outermost = self._depth == 0
        if not outermost:
            return
        try:
            self.release()
        except Exception as failure:
            # The work succeeded: a lease that now expires by itself does not make it a failure.
            if error is None and not isinstance(failure, OperationalError | InterfaceError):
                raise
            logger.warning("Lease %r could not be released and will expire", self.key, exc_info=True)

    def _why_over(self) -> str:
        """Return why the handle can no longer be used; empty while it can."""
        if self._pid != os.getpid():
            return f"it belongs to process {self._pid}, from which this one was forked"
        return "it was released" if self._released else self._lost

    def _loss(self, reason: str) -> LeaseLost:
        return LeaseLost(f"Lease {self.key!r} is lost: {reason}", key=self.key, token=self.token)

    async def arefresh(self, ttl: Duration | None = None) -> None:
        await sync_to_async(self.refresh)(ttl)

    async def anote(self, data: object) -> None:
        await sync_to_async(self.note)(data)

    async def arelease(self) -> bool:
        return await sync_to_async(self.release)()

    async def __aenter__(self) -> LeaseHandle:
        return self.__enter__()

    async def __aexit__(self, *error: Any) -> None:
        await sync_to_async(self.__exit__)(*error)


_held: ContextVar[tuple[LeaseHandle, ...]] = ContextVar("lockstep_leases_held", default=())
"""The handles whose blocks are open in this thread or task, the innermost last."""


def assert_held(key: str) -> LeaseHandle:
    """Return the handle of the surrounding block that holds the lease; sends no query.

    For functions deep inside that must not run without the lease. Raises `LeaseLost` where no block of this thread or
    task holds the key, or the lease is lost as far as this process knows.
    """
    name = valid_key(key)
    for handle in reversed(_held.get()):
        if handle.key == name:
            handle.check()
            return handle
    raise LeaseLost(f"Lease {name!r} is not held here: no surrounding block has acquired it", key=name)


def _deadline(requested_at: float, ttl: float) -> float:
    return requested_at + ttl * (1 - _DRIFT) - _DELAY


def acquire_from(
    store: LeaseStore, claim: Claim, *, wait: float, on_lost: Callback | None = None
) -> LeaseHandle | Holder | None:
    """Return the handle, or the holder after ``wait`` seconds (None: others are queueing for the lease)."""
    answer = store.acquire(claim, wait=wait)
    return LeaseHandle(claim, answer, store=store, on_lost=on_lost) if isinstance(answer, Grant) else answer


async def aacquire_from(
    store: LeaseStore, claim: Claim, *, wait: float, on_lost: Callback | None = None
) -> LeaseHandle | Holder | None:
    """Do as `acquire_from`; waits by polling, behind the callers in a queue."""

    def attempt() -> Grant | Holder | None:
        try:
            return store.acquire(claim, yields=True)
        except (OperationalError, InterfaceError):
            if not store.is_lost():
                raise
            return None  # another attempt may reach it

    longest = wait if lease_waits() else 0.0
    for pause in pauses(time.monotonic() + longest):
        # Polls instead of queueing: a queued wait would block the one thread that serves all async ORM calls.
        answer = await sync_to_async(attempt)()
        if isinstance(answer, Grant):
            break
        await asyncio.sleep(pause)
    else:
        answer = await sync_to_async(store.acquire)(claim, yields=longest > 0)
    return LeaseHandle(claim, answer, store=store, on_lost=on_lost) if isinstance(answer, Grant) else answer
