"""Processes contend for a lease and for items on DynamoDB, and note what they did."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings

from benchmarks.together import run_together
from django_lockstep.leases import LeaseLost, LeaseNotAcquired, lease
from django_lockstep.stores import DynamoStore, Update

GUARDED, FREE = "guarded", "free"
"""The items that are incremented under guard, and without a lease."""
_TTL = 3.0
"""Seconds after which another process takes over from one that is late."""
_LATE_EVERY = 10.0
"""Seconds between two holds of the first process that last longer than the ttl."""


@dataclass
class Tally:
    """What one process did."""

    spans: list[tuple[float, float, int]] = field(default_factory=list)
    """Beginning, end and token of each hold, by the clock that all processes of a machine share."""
    guarded: int = 0
    """Increments under guard that were reported as written."""
    optimistic: int = 0
    """Increments without a lease that were reported as written."""


def contend(options: dict[str, Any], *, workers: int, seconds: float) -> list[Tally]:
    """Let the processes contend in the store of these options, which has both items."""
    return run_together(functools.partial(_prepare, options, seconds), workers=workers)


def _prepare(options: dict[str, Any], seconds: float) -> Callable[[int], Tally]:
    stores: dict[str, Any] = {"tested": options}
    settings.LOCKSTEP_STORES = stores
    store = DynamoStore.named("tested")

    def run(number: int) -> Tally:
        tally, until, late_from = Tally(), time.monotonic() + seconds, math.inf if number else 0.0
        while (now := time.monotonic()) < until:
            if is_late := now >= late_from:
                late_from = now + _LATE_EVERY
            _hold(store, tally, is_late=is_late)
            change = _increment(store, FREE)
            tally.optimistic += bool(store.update_if_unchanged(FREE, change.changes, version=change.version))
        return tally

    return run


def _hold(store: Any, tally: Tally, *, is_late: bool) -> None:
    # Lost: another process took over from a late one. Not acquired: on a busy machine a waiter may always be refused.
    try:
        with lease("the one", _TTL, wait=60.0, store="tested") as handle:
            begun = time.monotonic()
            sure = begun + handle.remaining
            try:
                if is_late:
                    time.sleep(1.2 * _TTL)
                tally.guarded += bool(store.transact([_increment(store, GUARDED)], guards=[handle]))
            finally:
                tally.spans.append((begun, min(time.monotonic(), sure), handle.token))
    except (LeaseLost, LeaseNotAcquired):
        return


def _increment(store: Any, key: str) -> Update:
    item = store.read(key)
    return Update(key, {"n": item.attributes["n"] + 1}, item.version)
