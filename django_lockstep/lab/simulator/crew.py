"""All worker processes: started once, raced again and again, replaced when they die, gone at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from types import TracebackType
from typing import Any, Self

from django_lockstep.lab.simulator.desk import Task
from django_lockstep.lab.simulator.errors import SimulationError
from django_lockstep.lab.simulator.interrupt import Interrupt
from django_lockstep.lab.simulator.member import Casualty, Member, Shared, State
from django_lockstep.lab.simulator.processes import process_context
from django_lockstep.lab.simulator.worker import Post

__all__ = ["PATIENCE", "Crew", "Finish"]

PATIENCE = 70.0
"""Seconds for one operation; more than the longest retry of a strategy."""

_TICK = 0.1
"""Seconds between two looks at silent workers and at the progress."""
_LEAD = 300_000
"""Nanoseconds from the parent's word to the common start, for each worker; more than sending and waking take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """What became of one race."""

    results: tuple[Any, ...]
    """What each task returned, by worker; None of those that did not finish, or were called off before the start."""
    notes: tuple[tuple[Any, ...], ...]
    """What each worker told when it came to the barrier."""
    casualties: tuple[Casualty, ...]
    """The workers that did not finish."""


class Crew:
    """A context manager: its workers are there inside the block, and gone after it, however it is left."""

    def __init__(
        self, post: Post, *, workers: int, interrupt: Interrupt, patience: float = PATIENCE, grace: float = 3.0
    ) -> None:
        """Every worker gets ``post`` with its number in the session's name.

        ``patience``: seconds without a finished operation after which a worker counts as stuck. ``grace``: seconds that
        an interrupted worker has for the operation in hand.
        """
        self.interrupt = interrupt
        self._post = post
        self.patience = patience
        self._grace = grace
        self._context = process_context()
        self._shared = Shared.of(self._context, workers=workers)
        self._started = 0
        self.members: list[Member] = []
        self._size = workers

    def __enter__(self) -> Self:
        """Start the workers and wait until all are connected. Raises `SimulationError` if one of them cannot."""
        try:
            if not self.interrupt.requested:
                self.members += [self._member(number) for number in range(self._size)]
            self._attend()
            self._require_all()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End all workers; they leave by themselves if nothing went wrong."""
        self._close(patience=0 if error else 5)

    @property
    def size(self) -> int:
        """How many workers there are."""
        return self._size

    @property
    def beats(self) -> int:
        """How many operations all workers have finished since the crew was made."""
        return sum(self._shared.beats)

    def race(
        self, tasks: Sequence[Task], *, watch: Callable[[], None] | None = None, inseparable: bool = False
    ) -> Finish:
        """Run one task on each worker; those who meet are released together. Dead workers are replaced before.

        ``watch`` is called every tenth of a second. With ``inseparable`` the death of one ends the race for all;
        otherwise the others go on.
        """
        self._replace_the_dead()
        for member, task in zip(self.members, tasks, strict=True):
            member.give(None if self.interrupt.requested else task)
        self._attend(watch, inseparable=inseparable)
        self._shared.stop.value = 0
        return Finish(
            results=tuple(member.result for member in self.members),
            notes=tuple(tuple(member.notes) for member in self.members),
            casualties=tuple(member.casualty for member in self.members if member.casualty),
        )

    def _attend(self, watch: Callable[[], None] | None = None, *, inseparable: bool = False) -> None:
        """Listen and release until every worker has answered or is gone."""
        deadline, look = None, 0.0
        while unfinished := [member for member in self.members if member.unfinished]:
            lost = inseparable and any(member.casualty for member in self.members)
            if deadline is None and (self.interrupt.requested or lost):
                deadline = time.monotonic() + self._grace
                self._shared.stop.value = 1
            if deadline is not None:
                _call_off(unfinished, deadline=deadline)
            elif all(member.state is State.WAITING for member in unfinished):
                _release(unfinished)
            self._listen(unfinished, signals=deadline is None)
            if watch and time.monotonic() >= look:
                watch()
                look = time.monotonic() + _TICK

    def _listen(self, members: Sequence[Member], *, signals: bool) -> None:
        pipes = [member.pipe for member in members if member.unfinished]
        ready = wait([*pipes, self.interrupt.reader] if signals else pipes, timeout=_TICK)
        for member in members:
            if member.pipe in ready:
                member.hear()
            member.check_silence(self.patience)

    def _replace_the_dead(self) -> None:
        for member in self.members:
            if member.casualty and not self.interrupt.requested:
                member.close(deadline=0)
                self.members[member.number] = self._member(member.number)
        self._attend()

    def _member(self, number: int) -> Member:
        self._started += 1
        post = replace(self._post, session=f"{self._post.session}-{self._started:05}")
        return Member(post, self._shared, number=number, context=self._context)

    def _require_all(self) -> None:
        missing = [member.casualty for member in self.members if member.casualty]
        if missing and not self.interrupt.requested:
            ready = len(self.members) - len(missing)
            raise SimulationError(f"Only {ready} of {len(self.members)} workers could start: {missing[0]}")

    def _close(self, *, patience: float = 0) -> None:
        deadline = time.monotonic() + patience
        for member in self.members:
            member.pipe.close()  # all at once, so that they leave at the same time
        for member in self.members:
            member.close(deadline=deadline)
        self.members.clear()


def _release(members: Sequence[Member]) -> None:
    start = time.perf_counter_ns() + _LEAD * len(members)
    for member in members:
        member.release(start)


def _call_off(members: Sequence[Member], *, deadline: float) -> None:
    for member in members:
        if member.state is State.WAITING:
            member.release(None)
        elif time.monotonic() > deadline:
            member.kill("did not stop in time, so it was killed")
