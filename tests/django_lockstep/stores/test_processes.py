"""Real processes contend for a lease, count without one, and are stopped, on DynamoDB."""

from __future__ import annotations

import functools
import json
import math
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings

from benchmarks.together import run_together
from django_lockstep.leases import LeaseLost, LeaseNotAcquired, lease
from django_lockstep.stores import DynamoStore, Put, Update
from tests.django_lockstep.leases.test_processes import assert_never_overlap, program

SECONDS = float(os.environ.get("STORES_CONTENTION_SECONDS", "4"))
"""For how long the processes contend; 60 for the long run."""

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


def test_four_processes_lose_and_double_nothing(dynamodb: DynamoStore, dynamodb_table: dict[str, Any]) -> None:
    for key in (GUARDED, FREE):
        assert dynamodb.put_if_absent(key, {"n": 0})
    tallies = contend(dynamodb_table, workers=4, seconds=SECONDS)
    assert_never_overlap(span for tally in tallies for span in tally.spans)
    items = [dynamodb.read(key) for key in (GUARDED, FREE)]
    written = [sum(tally.guarded for tally in tallies), sum(tally.optimistic for tally in tallies)]
    assert [item.attributes["n"] for item in items if item] == written
    assert min(written) > 0


def test_a_holder_that_is_stopped_in_the_middle_of_a_guarded_write_has_written_nothing(
    dynamodb: DynamoStore, dynamodb_table: dict[str, Any]
) -> None:
    with program(json.dumps(dynamodb_table), "2", module="tests.django_lockstep.stores.programs") as stopped:
        token = stopped.answer()["token"]
        stopped.process.send_signal(signal.SIGSTOP)
        # Not before the stopped holder's ttl is over.
        with lease("k", 60, wait=60, store="tested") as successor:
            assert successor.token > token
            stopped.process.send_signal(signal.SIGCONT)
            stopped.send("go on")
            assert stopped.answer()["failed"]
            assert dynamodb.read("written") is None
            assert dynamodb.transact([Put("written", {"by": "successor"})], guards=[successor])
