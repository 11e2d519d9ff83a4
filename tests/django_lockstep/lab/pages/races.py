"""Races that the pages' processes run, apart from the tests: to import those takes a process a second."""

import os
import time
from pathlib import Path

from django_lockstep.lab.explorer import Scenario
from tests.django_lockstep.lab.explorer import stories

HERE = "tests.django_lockstep.lab.pages.races"
GATE = "LOCKSTEP_TEST_LIVE_GATE"
"""The environment variable that names a file to the processes."""
_CALLS: list[None] = []


def print_and_make_a_seat() -> int:
    print("set up")  # noqa: T201
    return stories.one_seat()


def one_seat_behind_a_gate() -> int:
    """The fourth time, wait for as long as the file is there."""
    _CALLS.append(None)
    gate = Path(os.environ[GATE])
    while len(_CALLS) == 4 and gate.exists():
        gate.with_suffix(".waits").touch()
        time.sleep(0.01)
    return stories.one_seat()


def fall() -> int:
    raise ZeroDivisionError


NAIVE = stories.raising(stories.naive)
LOCKED = stories.raising(stories.locked)
NESTED = Scenario(set_up=print_and_make_a_seat, actors=[stories.locked], observe=lambda pk: "<script>alert(1)</script>")
GATED = Scenario(
    set_up=one_seat_behind_a_gate, actors=[stories.naive] * 2, invariant=stories.raised_by(10), observe=stories.price
)
FALLING = Scenario(set_up=fall, actors=[stories.locked])
