"""Real processes hold, stop, die and contend."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from typing import Any

import pytest
from django.db import transaction

from django_lockstep.leases.models import Lease
from tests.accounts.races.commands import ROOT, environment
from tests.django_lockstep.leases.holding import acquired
from tests.testapps.press.models import Note

pytestmark = pytest.mark.django_db(transaction=True)

SECONDS = os.environ.get("LEASES_CONTENTION_SECONDS", "2")
"""How long the processes contend; 60 for the long run."""


class Program:
    """A program of this module in a process, spoken to line by line."""

    module = "tests.django_lockstep.leases.programs"

    def __init__(self, *args: str, **env: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", self.module, *args],
            cwd=ROOT,
            env=environment(**env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def send(self, line: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer


@contextmanager
def program(*args: str, **env: str) -> Iterator[Program]:
    """Run the program for the length of a block."""
    with running(Program(*args, **env)) as started:
        yield started


@contextmanager
def running(started: Program) -> Iterator[Program]:
    """End the program after a block."""
    try:
        yield started
    finally:
        started.process.send_signal(signal.SIGCONT)
        started.process.kill()
        started.process.communicate(timeout=30)


def test_a_holder_that_was_paused_past_its_ttl_does_no_harm() -> None:
    with program("writer", "3") as holder:
        token = holder.answer()["token"]
        holder.send("before")
        assert holder.answer() == {"written": "before"}
        holder.process.send_signal(signal.SIGSTOP)
        successor = acquired(wait=30)
        with transaction.atomic():
            successor.guard()
            Note.objects.create(text="successor", token=successor.token)
        holder.process.send_signal(signal.SIGCONT)
        holder.send("after")
        assert holder.answer() == {"lost": True}
    assert list(Note.objects.order_by("pk").values_list("text", "token")) == [
        ("before", token),
        ("successor", successor.token),
    ]


def test_a_holder_that_is_stopped_under_guard_keeps_the_lease_for_its_ttl_and_has_written_nothing() -> None:
    with program("guarding", "2") as holder:
        holder.answer()
        holder.process.send_signal(signal.SIGSTOP)
        successor = Lease.objects.acquire("k", 60, wait=60)
        holder.process.send_signal(signal.SIGCONT)
        holder.send("commit")
        assert holder.answer() == {"written": False}
    assert successor is not None
    assert not Note.objects.exists()


def test_eight_contending_processes_never_overlap() -> None:
    with ExitStack() as stack:
        contenders = [stack.enter_context(program("contender", SECONDS)) for _ in range(8)]
        times = [contender.answer()["held"] for contender in contenders]
    assert all(times)
    assert_never_overlap(tuple(span) for spans in times for span in spans)


def assert_never_overlap(times: Iterable[tuple[float, float, int]]) -> None:
    """Each lease of these times, with beginning, end and token, ended before the next one, and tokens rise."""
    spans = sorted(times)
    tokens = [token for _, _, token in spans]
    assert tokens == sorted(set(tokens)) != []
    assert all(end <= begun for (_, end, _), (begun, _, _) in pairwise(spans))
