"""Asking a store for a lease: a handle where it is granted, otherwise its holder."""

from __future__ import annotations

import asyncio
import time

from asgiref.sync import sync_to_async
from django.db import InterfaceError, OperationalError

from django_lockstep.leases.handles import Callback, LeaseHandle
from django_lockstep.stores.protocol import LeaseStore
from django_lockstep.stores.terms import Claim, Grant, Holder
from django_lockstep.stores.waiting import lease_waits, pauses

__all__ = ["aask", "ask"]


def ask(
    store: LeaseStore, wanted: Claim, *, wait: float, on_lost: Callback | None = None
) -> LeaseHandle | Holder | None:
    """Return the handle, or the holder after ``wait`` seconds (None: others are queueing for the lease)."""
    return _handle(store, wanted, store.acquire(wanted, wait=wait), on_lost)


async def aask(
    store: LeaseStore, wanted: Claim, *, wait: float, on_lost: Callback | None = None
) -> LeaseHandle | Holder | None:
    """Do as `ask`; waits by polling, behind the callers in a queue."""
    longest = wait if lease_waits() else 0.0
    for pause in pauses(time.monotonic() + longest):
        # Polls instead of queueing: a queued wait would block the one thread that serves all async ORM calls.
        answer = await sync_to_async(_attempt_or_lost)(store, wanted)
        if isinstance(answer, Grant):
            break
        await asyncio.sleep(pause)
    else:
        answer = await sync_to_async(store.acquire)(wanted, yields=longest > 0)
    return _handle(store, wanted, answer, on_lost)


def _attempt_or_lost(store: LeaseStore, wanted: Claim) -> Grant | Holder | None:
    """Try once; None also where the store cannot be reached."""
    try:
        return store.acquire(wanted, yields=True)
    except (OperationalError, InterfaceError):
        if not store.is_lost():
            raise
        return None


def _handle(
    store: LeaseStore, wanted: Claim, answer: Grant | Holder | None, on_lost: Callback | None
) -> LeaseHandle | Holder | None:
    return LeaseHandle(wanted, answer, store=store, on_lost=on_lost) if isinstance(answer, Grant) else answer
