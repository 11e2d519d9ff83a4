"""Real processes contend for a lease, count without one, and are stopped, on both stores."""

import json
import os
import signal
from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise
from typing import Any

from django_lockstep.leases import LeaseHandle
from django_lockstep.leases.asking import ask
from django_lockstep.stores import Put, Store, claim
from tests.django_lockstep.leases.test_processes import Program, running

ROUNDS = os.environ.get("STORES_CONTENTION_ROUNDS", "10")
"""How often each of the eight processes takes the lease."""


class StoreProgram(Program):
    module = "tests.django_lockstep.stores.programs"


def answers_of_eight(name: str, options: dict[str, Any]) -> list[dict[str, Any]]:
    with ExitStack() as stack:
        started = [stack.enter_context(running(StoreProgram(name, json.dumps(options), ROUNDS))) for _ in range(8)]
        return [each.answer() for each in started]


def counted(store: Store) -> int:
    item = store.read("counter")
    assert item is not None
    return int(item.attributes["n"])


def test_eight_processes_hold_it_one_after_the_other(options: dict[str, Any], store: Store) -> None:
    assert store.put_if_absent("counter", {"n": 0})
    answers = answers_of_eight("contender", options)
    times = sorted(tuple(time) for answer in answers for time in answer["held"])
    assert len(times) == 8 * int(ROUNDS)
    for (_, ended, token), (begun, _, successor) in pairwise(times):
        assert ended <= begun
        assert token < successor
    assert counted(store) == len(times)


def test_eight_processes_count_without_a_lease(options: dict[str, Any], store: Store) -> None:
    assert store.put_if_absent("counter", {"n": 0})
    assert sum(answer["done"] for answer in answers_of_eight("optimist", options)) == 8 * int(ROUNDS)
    assert counted(store) == 8 * int(ROUNDS)


def test_a_stopped_holder_writes_nothing(options: dict[str, Any], store: Store, expire: Callable[[str], None]) -> None:
    with running(StoreProgram("writer", json.dumps(options))) as paused:
        token = paused.answer()["token"]
        paused.process.send_signal(signal.SIGSTOP)
        expire("k")
        successor = ask(store, claim("k", 60), wait=0)
        assert isinstance(successor, LeaseHandle)
        assert successor.token > token
        paused.process.send_signal(signal.SIGCONT)
        paused.send("go on")
        assert paused.answer() == {"lost": True}
        assert store.read("written") is None
        assert store.transact([Put("written", {"by": "successor"})], guards=[successor])
