"""Three methods of waiting for a lease, compared by their longest waits.

``python -m benchmarks.lease_waits``: processes hold one lease for a moment each, again and again, and wait for it by a
queue of advisory locks (what `django_lockstep.leases` does), by LISTEN/NOTIFY, or by polling with jitter.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from benchmarks.together import run_together

Waiter = Callable[[], Any]
"""Waits for the lease and returns its handle."""

KEY, TTL = "the one", 60.0


def queue() -> Waiter:
    """Return the package's own waiting."""
    from django_lockstep.leases.models import Lease

    return partial(Lease.objects.acquire, KEY, TTL, wait=60)


def polling(longest: float) -> Waiter:
    """Return polling with pauses of a tenth of the time waited, at most ``longest`` seconds."""
    # A tenth of the wait: who has waited long may wait a little longer, and the server is asked less often.
    return _again(lambda waited: time.sleep(random.uniform(0.5, 1.5) * min(longest, max(0.005, waited / 10))))  # noqa: S311


def notified() -> Waiter:
    """Return attempts after each notification of a release, and polling for leases that expire."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("LISTEN lease_released")
    session: Any = connection.connection

    def pause(waited: float) -> None:
        # The time limit finds leases that expired: nobody notifies of these.
        for _ in session.notifies(timeout=min(0.5, max(0.05, waited / 10)), stop_after=1):
            pass

    return _again(pause)


def _again(pause: Callable[[float], None]) -> Waiter:
    from django_lockstep.leases.models import Lease

    def wait() -> Any:
        begun = time.monotonic()
        while (handle := Lease.objects.acquire(KEY, TTL)) is None:
            pause(time.monotonic() - begun)
        return handle

    return wait


WAYS: Mapping[str, Callable[[], Waiter]] = {
    "queue": queue,
    "notify": notified,
    "polling, 0.05 s": partial(polling, 0.05),
    "polling, 0.5 s": partial(polling, 0.5),
}


def _prepare(way: str, hold: float, seconds: float) -> Callable[[int], list[float]]:
    from django.db import connection

    wait = WAYS[way]()

    def count(number: int) -> list[float]:
        waits, until = [], time.monotonic() + seconds
        while (asked := time.monotonic()) < until:
            handle = wait()
            waits.append(time.monotonic() - asked)
            time.sleep(hold)
            handle.release()
            if way == "notify":
                with connection.cursor() as cursor:
                    cursor.execute("NOTIFY lease_released")
        return waits

    return count


def waits(way: str, *, workers: int, hold: float, seconds: float) -> list[float]:
    """Return how many seconds each wait took, sorted."""
    return sorted(itertools.chain(*run_together(partial(_prepare, way, hold, seconds), workers=workers)))


def line(way: str, taken: Sequence[float], *, seconds: float) -> str:
    """Return rate, median, 99th percentile and maximum of the waits in milliseconds."""
    marks = [taken[min(len(taken) - 1, int(len(taken) * share))] * 1000 for share in (0.5, 0.99, 1.0)]
    return f"{way:18}{len(taken) / seconds:8.0f}" + "".join(f"{mark:9.0f}" for mark in marks)


def main(arguments: Sequence[str]) -> None:
    """Measure every method in each round."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lease_waits", description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="for each method and round (default: 5)")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--hold", type=float, default=0.02, help="seconds for which each holds it (default: 0.02)")
    options = parser.parse_args(arguments)
    import django

    django.setup()
    from django.db import connection

    before = connection.settings_dict["NAME"]
    connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
    print(f"{'':18}{'holds/s':>8}{'p50 ms':>9}{'p99 ms':>9}{'max ms':>9}")  # noqa: T201
    try:
        for _ in range(options.rounds):
            for way in WAYS:
                taken = waits(way, workers=options.workers, hold=options.hold, seconds=options.seconds)
                print(line(way, taken, seconds=options.seconds), flush=True)  # noqa: T201
    finally:
        connection.creation.destroy_test_db(before, verbosity=0)


if __name__ == "__main__":
    os.environ["DJANGO_SETTINGS_MODULE"] = "bank.settings"
    main(sys.argv[1:])
