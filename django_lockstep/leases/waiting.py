"""Acquiring, at once or in a queue.

Of polling with jitter, LISTEN/NOTIFY and a queue of advisory locks the queue had by far the shortest 99th percentile:
of eight processes that held a lease for 20 ms each, one in a hundred waited 0.17 s, against 5 s and 1.2 s,
at the same rate (``benchmarks/lease_waits.py``). The server keeps the order; only the first in the queue polls.
"""

from __future__ import annotations

import json
import logging
import math
import random
import time
from collections.abc import Callable, Iterator

from django.db import InterfaceError, OperationalError, connections, transaction

from django_lockstep.errors import sqlstate_of
from django_lockstep.leases.conf import lease_waits
from django_lockstep.leases.stores import Store, is_lost, on_own_connection, timeout_of
from django_lockstep.leases.terms import Claim, Grant, Holder

__all__ = ["acquire", "attempt", "attempt_or_lost", "pauses"]

logger = logging.getLogger("lockstep.leases")

SHORTEST_PAUSE, LONGEST_PAUSE = 0.001, 0.5
"""Bounds of the pauses between two looks at a lease, in seconds."""
SLICE = 0.005
"""Seconds for which the first in the queue lets others be faster, before it insists on its turn.

Who has just released a lease and wants it again gets it for a tenth of what handing it over costs: a process that slept
wakes up slowly. Strict order for leases held for less than that would be a convoy.
"""
TURN = 30.0
"""Seconds after which a waiter queues anew: a statement that waits keeps VACUUM from the rows that it could see."""

Answer = Grant | Holder | None


def acquire(using: str, claim: Claim, *, wait: float) -> Answer:
    """Return the grant, or who holds the lease after ``wait`` seconds (None: others queue for it).

    On PostgreSQL those who queue get the lease in the order in which they asked, and nobody else gets it once the first
    of them has waited for `SLICE`: behind ``n`` others the wait is at most ``n + 1`` times that and as long as somebody
    holds it, as long as nobody waits longer than `TURN`. Who loses the connection queues anew on another one, until
    the wait is over: a restart of the server shortens no wait. Raises what the last try to reach the database raised.
    """
    deadline = time.monotonic() + (wait if lease_waits() else 0.0)
    answer = _patiently(using, lambda store: _attempt(store, claim, polite=wait > 0), until=deadline)
    while not isinstance(answer, Grant) and (left := deadline - time.monotonic()) > 0:
        turn_ends = time.monotonic() + min(left, TURN)
        answer = _patiently(using, lambda store: _turn(store, using, claim, until=turn_ends), until=deadline)  # noqa: B023
    return answer


def _patiently(using: str, verb: Callable[[Store], Answer], *, until: float) -> Answer:
    """Run the verb, and again while the database cannot be reached, with pauses; the last time when it is ``until``."""
    for number, pause in enumerate(pauses(until)):
        try:
            return on_own_connection(using, verb)
        except (OperationalError, InterfaceError) as error:
            if not is_lost(using):
                raise
            if not number:
                logger.warning("A wait for a lease goes on, but database %r cannot be reached: %s", using, error)
        time.sleep(pause)
    return on_own_connection(using, verb)


def attempt(using: str, claim: Claim, *, polite: bool = False) -> Answer:
    """Try once; ``polite`` leaves the lease to the first in the queue who insists on it."""
    return on_own_connection(using, lambda store: _attempt(store, claim, polite=polite))


def attempt_or_lost(using: str, claim: Claim) -> Answer:
    """Try once, politely; None too where the database cannot be reached."""
    try:
        return attempt(using, claim, polite=True)
    except (OperationalError, InterfaceError):
        if not is_lost(using):
            raise
        return None


def pauses(until: float) -> Iterator[float]:
    """Yield seconds to sleep until ``time.monotonic()`` is ``until``: a tenth of what was waited, with jitter."""
    begun = time.monotonic()
    while (now := time.monotonic()) < until:
        pause = min(max((now - begun) / 10, SHORTEST_PAUSE), LONGEST_PAUSE)
        yield min(pause * random.uniform(0.5, 1.0), until - now)  # noqa: S311 - jitter is no secret


def _attempt(store: Store, claim: Claim, *, polite: bool) -> Answer:
    asked = time.monotonic()
    answer = store.attempt(claim, timeout=timeout_of(claim.ttl), polite=polite)
    if claim.is_unique and isinstance(answer, Holder) and answer.owner == claim.owner and not answer.released:
        # An attempt before this one succeeded, and its answer was lost with the connection.
        begun = asked + answer.remaining - claim.ttl
        return Grant(token=answer.token, since=answer.since, asked=begun, data=json.dumps(answer.data))
    return answer


def _turn(store: Store, using: str, claim: Claim, *, until: float) -> Answer:
    """Queue for the lease, and take it as soon as it is free; return who holds it where it does not get free."""
    if not store.has_queue or connections[using].in_atomic_block:
        return _poll(store, claim, until=until)
    try:
        with transaction.atomic(using=using):
            store.queue(claim.key, timeout=max(until - time.monotonic(), 0.001), after=timeout_of(claim.ttl))
            return _poll(store, claim, until=until, insists_after=SLICE)
    except OperationalError as error:
        if sqlstate_of(error) != "57014":
            raise
    return _attempt(store, claim, polite=True)


def _poll(store: Store, claim: Claim, *, until: float, insists_after: float = math.inf) -> Answer:
    begun = time.monotonic()
    answer = _attempt(store, claim, polite=False)
    for pause in pauses(until):
        if isinstance(answer, Grant):
            break
        expires_in = answer.remaining + SHORTEST_PAUSE if isinstance(answer, Holder) else pause
        time.sleep(min(pause, expires_in))
        if time.monotonic() - begun > insists_after:
            store.insist(claim.key, timeout=timeout_of(claim.ttl))
            insists_after = math.inf
        answer = _attempt(store, claim, polite=False)
    return answer
