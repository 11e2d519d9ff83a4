"""Processes contend for a lease and for items on DynamoDB; what they reported must be what the items say."""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings

from benchmarks.together import run_together
from django_lockstep.leases import LeaseLost, LeaseNotAcquired, lease
from django_lockstep.stores import DynamoStore, Update

__all__ = ["LATE_EVERY", "STORE", "TTL", "Counts", "StoreOptions", "contend", "use"]

StoreOptions = Mapping[str, Any]
"""What ``LOCKSTEP_STORES`` says of one store."""

STORE = "measured"
"""The name under which each process has the store."""
_KEY, _GUARDED, _FREE = "the one", "guarded", "free"
TTL = 3.0
"""Seconds after which another process takes over from one that is late."""
WAIT = 60.0
"""Seconds that a process waits for the lease."""
LATE_EVERY = 10.0
"""Seconds between two holds of the first process that last longer than the ttl."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What the processes did on one store, and whether it fits together."""

    acquired: int
    lost: int
    """Holds whose guarded write was refused, because another process had taken the lease over."""
    overlaps: int
    """Holds that began while the one before was certainly held."""
    tokens_in_order: bool
    """Whether each hold had a higher token than all before it."""
    guarded: int
    """Increments under guard that were reported as written."""
    guarded_counted: int
    """Increments of that item as it was left."""
    optimistic: int
    """Increments without a lease that were reported as written."""
    optimistic_counted: int

    @property
    def is_sound(self) -> bool:
        """Whether no two held the lease at once, and no increment was lost or doubled."""
        return (
            not self.overlaps
            and self.tokens_in_order
            and (self.guarded, self.optimistic) == (self.guarded_counted, self.optimistic_counted)
        )


@dataclass
class _Tally:
    """One process's part."""

    spans: list[tuple[float, float, int]] = field(default_factory=list)
    """Beginning, end and token of each hold, by the clock that all processes of a machine share."""
    lost: int = 0
    guarded: int = 0
    optimistic: int = 0


def contend(options: StoreOptions, *, workers: int, seconds: float) -> Counts:
    """Let the processes contend in a store that has no items."""
    store = _use_items(options)
    for key in (_GUARDED, _FREE):
        if store.put_if_absent(key, {"n": 0}) is None:
            raise ValueError(f"the store has an item {key!r} already")
    tallies = run_together(functools.partial(_prepare, dict(options), seconds), workers=workers)
    spans = sorted(itertools.chain.from_iterable(tally.spans for tally in tallies))
    return Counts(
        acquired=len(spans),
        lost=sum(tally.lost for tally in tallies),
        overlaps=sum(begun < ended for (_, ended, _), (begun, _, _) in itertools.pairwise(spans)),
        tokens_in_order=all(token < later for (_, _, token), (_, _, later) in itertools.pairwise(spans)),
        guarded=sum(tally.guarded for tally in tallies),
        guarded_counted=_counted(store, _GUARDED),
        optimistic=sum(tally.optimistic for tally in tallies),
        optimistic_counted=_counted(store, _FREE),
    )


def _counted(store: Any, key: str) -> int:
    return int(store.read(key).attributes["n"])


def use(options: StoreOptions) -> None:
    """Give the store of these options the name `STORE`."""
    settings.LOCKSTEP_STORES = {**getattr(settings, "LOCKSTEP_STORES", {}), STORE: dict(options)}


def _use_items(options: StoreOptions) -> DynamoStore:
    use(options)
    return DynamoStore.named(STORE)


def _prepare(options: StoreOptions, seconds: float) -> Callable[[int], _Tally]:
    store = _use_items(options)

    def run(number: int) -> _Tally:
        tally, until, late_from = _Tally(), time.monotonic() + seconds, math.inf if number else 0.0
        while (now := time.monotonic()) < until:
            if is_late := now >= late_from:
                late_from = now + LATE_EVERY
            _hold(store, tally, is_late=is_late)
            change = _increment(store, _FREE)
            tally.optimistic += bool(store.update_if_unchanged(_FREE, change.changes, version=change.version))
        return tally

    return run


def _hold(store: Any, tally: _Tally, *, is_late: bool) -> None:
    try:
        with lease(_KEY, TTL, wait=WAIT, store=STORE) as handle:
            begun = time.monotonic()
            sure = begun + handle.remaining
            try:
                if is_late:
                    time.sleep(1.2 * TTL)
                tally.guarded += bool(store.transact([_increment(store, _GUARDED)], guards=[handle]))
            finally:
                tally.spans.append((begun, min(time.monotonic(), sure), handle.token))
    except LeaseLost:
        tally.lost += 1
    except LeaseNotAcquired:
        # A machine that is busy: waiters poll, and one may be refused for all of its wait.
        return


def _increment(store: Any, key: str) -> Update:
    item = store.read(key)
    return Update(key, {"n": item.attributes["n"] + 1}, item.version)
