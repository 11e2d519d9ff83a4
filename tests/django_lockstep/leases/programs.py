"""Programs that hold leases, for the tests to stop, to kill, and to let contend.

``python -m tests.django_lockstep.leases.programs NAME ARGUMENT...``; each answer is one line of JSON.
"""

from __future__ import annotations

import json
import sys
import time

import django


def tell(**answer: object) -> None:
    """Give the tests an answer."""
    print(json.dumps(answer), flush=True)  # noqa: T201


def writer(ttl: str) -> None:
    """Hold a lease with a heartbeat; write under guard whenever a line comes in."""
    from django.db import transaction

    from django_lockstep.leases import LeaseLost, lease
    from tests.testapps.press.models import Note

    with lease("k", float(ttl), heartbeat=True) as handle:
        tell(token=handle.token)
        for line in sys.stdin:
            try:
                with transaction.atomic():
                    Note.objects.create(text=line.strip(), token=handle.token)
                    handle.guard()
            except LeaseLost:
                tell(lost=True)
            else:
                tell(written=line.strip())


def guarding(ttl: str) -> None:
    """Write under guard, and commit when a line comes in."""
    from django.db import DatabaseError, transaction

    from django_lockstep.leases.models import Lease
    from tests.testapps.press.models import Note

    handle = Lease.objects.acquire("k", float(ttl))
    assert handle is not None
    try:
        with transaction.atomic():
            handle.guard()
            Note.objects.create(token=handle.token)
            tell(token=handle.token)
            sys.stdin.readline()
    except DatabaseError:
        tell(written=False)
    else:
        tell(written=True)


def keeper(ttl: str) -> None:
    """Hold a lease with a heartbeat; say when it was lost, and answer every line with whether it is held."""
    from django_lockstep.leases import LeaseLost, lease

    with lease("k", float(ttl), heartbeat=True, on_lost=lambda handle: tell(lost=True)) as handle:
        tell(token=handle.token)
        for _ in sys.stdin:
            try:
                handle.check()
            except LeaseLost:
                tell(held=False)
            else:
                tell(held=True, remaining=handle.remaining)


def waiter(seconds: str) -> None:
    """Wait for a lease; tell when the database cannot be reached, and whether the lease was acquired."""
    import logging

    from django_lockstep.leases.models import Lease

    handler = logging.Handler()
    handler.emit = lambda record: tell(said=record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("lockstep.leases").addHandler(handler)
    tell(acquired=Lease.objects.acquire("k", 60, wait=float(seconds)) is not None)


def contender(seconds: str) -> None:
    """Acquire, hold for a moment, release, again and again; tell when it was held, by a clock that all share."""
    from django_lockstep.leases.models import Lease

    until = time.monotonic() + float(seconds)
    held: list[tuple[float, float, int]] = []
    while time.monotonic() < until:
        handle = Lease.objects.acquire("k", 30, wait=30)
        if handle is not None:
            begun = time.monotonic()
            held.append((begun, time.monotonic(), handle.token))
            handle.release()
    tell(held=held)


if __name__ == "__main__":
    django.setup()
    globals()[sys.argv[1]](*sys.argv[2:])
