"""The handle: what a holder does with the lease that it got."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from asgiref.sync import sync_to_async
from django.db import InterfaceError, OperationalError, connections

from django_lockstep.leases.errors import LeaseLost
from django_lockstep.leases.guards import guard
from django_lockstep.leases.heartbeats import Heartbeat
from django_lockstep.leases.stores import on_own_connection, timeout_of
from django_lockstep.leases.terms import Claim, Grant
from django_lockstep.locking.durations import Duration, seconds

__all__ = ["LeaseHandle", "OnLost"]

OnLost = Callable[["LeaseHandle"], object]
"""Called once, with the handle, in the thread that finds out."""

logger = logging.getLogger("lockstep.leases")

_DRIFT, _DELAY = 0.01, 0.002
"""How much faster than ours the database's clock may run, and seconds in addition: the margin that S. Sanfilippo's
"Distributed Locks with Redis" subtracts from a validity time."""


class LeaseHandle:
    """A lease that this process holds; made by ``Lease.objects.acquire`` and `lease`.

    As a context manager it releases the lease at the end of the block; entered again inside, at the end of the
    outermost one. It belongs to the process that acquired: in a process forked from that, it is lost, and touches
    nothing. Its methods may be called from every thread, ``refresh``, ``ensure`` and ``release`` outside of
    transactions only, ``guard`` inside of one only.
    """

    def __init__(self, claim: Claim, grant: Grant, *, using: str, on_lost: OnLost | None = None) -> None:
        self.key = claim.key
        self.token = grant.token
        """Higher than that of everybody who held the lease before; the same until the end."""
        self.owner = claim.owner
        self.ttl = claim.ttl
        """Seconds for which it is refreshed unless something else is asked for."""
        self.at_least = claim.at_least
        self.acquired_at = grant.since
        """By the database's clock."""
        self.using = using
        """Alias of the database."""
        self._data = claim.data
        self._deadline = _deadline(grant.asked, claim.ttl)
        self._on_lost = on_lost
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._depth = 0
        self._lost = ""
        self._released = False
        self._heartbeat: Heartbeat | None = None

    def __repr__(self) -> str:
        return f"<LeaseHandle {self.key!r} token={self.token} owner={self.owner!r}>"

    @property
    def data(self) -> Any:
        """What was noted when it was acquired; every access gives a new copy."""
        return json.loads(self._data)

    @property
    def remaining(self) -> float:
        """Seconds for which it is surely held, by this process's monotonic clock; asks nobody.

        Counted from before the database was asked, less a margin for clocks that do not run equally fast.
        """
        if self._is_over():
            return 0.0
        return max(0.0, self._deadline - time.monotonic())

    def check(self) -> None:
        """Raise `LeaseLost` unless the lease is surely held, as far as this process knows; asks nobody."""
        if self.remaining <= 0:
            raise self._loss(self._why_over() or "it was not refreshed in time")

    def refresh(self, ttl: Duration | None = None) -> None:
        """Let the lease expire no earlier than ``ttl`` (default: the one it was acquired with) from now.

        One that has expired is held again if nobody took it. Raises `LeaseLost`, and then at every further call;
        ``TransactionManagementError`` in a transaction; `LeaseTimedOut` and the driver's errors where the database does
        not answer: then it may be called again.
        """
        wanted = self.ttl if ttl is None else seconds(ttl, name="ttl")
        if reason := self._why_over():
            raise self._loss(reason)
        asked = time.monotonic()
        timeout = timeout_of(self.ttl)
        if not on_own_connection(
            self.using, lambda store: store.refresh(self.key, self.token, ttl=wanted, timeout=timeout)
        ):
            self.lose("somebody else took it, or released it")
            raise self._loss(self._lost)
        self._deadline = max(self._deadline, _deadline(asked, wanted))

    def ensure(self, least: Duration) -> None:
        """Refresh if fewer than ``least`` seconds are left, so that they are; raises as `refresh` does."""
        wanted = seconds(least, name="seconds")
        if self.remaining < wanted:
            # The answer takes time as well, at most this much.
            self.refresh(max(self.ttl, (wanted + timeout_of(self.ttl) + _DELAY) / (1 - _DRIFT)))

    def release(self) -> bool:
        """Give the lease back; False if it was lost or released before, and then nothing is touched.

        With ``at_least`` it stays taken until that is over. Raises as `refresh` does, but never `LeaseLost`.
        """
        if self._pid != os.getpid():
            return False
        self.stop_heartbeat()
        if self._is_over():
            return False
        released = on_own_connection(
            self.using,
            lambda store: store.release(self.key, self.token, at_least=self.at_least, timeout=timeout_of(self.ttl)),
        )
        self._released = True
        return released

    def guard(self, *, within: Duration | None = None) -> None:
        """Hold the lease until the open transaction ends; see `django_lockstep.leases.guards.guard`."""
        if reason := self._why_over():
            raise self._loss(reason)
        guard(self.key, self.token, within=within, using=self.using)

    def start_heartbeat(self) -> None:
        """Refresh the lease at a third of its ttl from a thread and a connection of its own, until it is released.

        The thread ends with the handle's last reference, and with the process. A refresh that fails is tried again
        until the lease has expired; then, and where somebody else holds it, it is lost. In the transaction of a
        ``TestCase``, which no other connection can see into, nothing is started.
        """
        if self._heartbeat is None and not connections[self.using].in_atomic_block:
            self._heartbeat = Heartbeat(self)

    def stop_heartbeat(self) -> None:
        """End the heartbeat's thread, and wait for it."""
        if self._heartbeat is not None:
            self._heartbeat.stop()
            self._heartbeat = None

    def lose(self, reason: str) -> None:
        """Note that the lease is lost, and call ``on_lost`` if this is the first to know."""
        with self._lock:
            known, self._lost = self._lost, self._lost or reason
        if not known and self._on_lost is not None:
            try:
                self._on_lost(self)
            except Exception:
                # What counts for who is here is the loss, not what went wrong while it was told.
                logger.exception("The callback of the lost lease %r failed", self.key)

    def __enter__(self) -> LeaseHandle:
        """Begin a block; raise `LeaseLost` where the lease is no longer held."""
        self.check()
        with self._lock:
            self._depth += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Release the lease with the outermost block; the block's own error goes before one of the release.

        Where the database cannot be reached the lease is left to expire, with a warning in the log.
        """
        if self._pid != os.getpid():
            return
        with self._lock:
            self._depth -= 1
            outermost = self._depth == 0
        if outermost:
            self._release_after(error)

    def _release_after(self, error: BaseException | None) -> None:
        try:
            self.release()
        except Exception as failure:
            # The work is done: that the lease now ends by itself is no reason to call it failed.
            if error is None and not isinstance(failure, OperationalError | InterfaceError):
                raise
            logger.warning("Lease %r could not be released and will expire", self.key, exc_info=True)

    def _is_over(self) -> bool:
        return bool(self._why_over())

    def _why_over(self) -> str:
        """Return why the handle is of no use any more; empty while it is."""
        if self._pid != os.getpid():
            return f"it belongs to process {self._pid}, from which this one was forked"
        return "it was released" if self._released else self._lost

    def _loss(self, reason: str) -> LeaseLost:
        return LeaseLost(f"Lease {self.key!r} is lost: {reason}", key=self.key, token=self.token)

    async def arefresh(self, ttl: Duration | None = None) -> None:
        """Do as `refresh`, from async code."""
        await sync_to_async(self.refresh)(ttl)

    async def aensure(self, least: Duration) -> None:
        """Do as `ensure`, from async code."""
        await sync_to_async(self.ensure)(least)

    async def arelease(self) -> bool:
        """Do as `release`, from async code."""
        return await sync_to_async(self.release)()

    async def __aenter__(self) -> LeaseHandle:
        """Do as ``with``."""
        return self.__enter__()

    async def __aexit__(self, *error: Any) -> None:
        """Do as ``with``."""
        await sync_to_async(self.__exit__)(*error)


def _deadline(asked: float, ttl: float) -> float:
    return asked + ttl * (1 - _DRIFT) - _DELAY
