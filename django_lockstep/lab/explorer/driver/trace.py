"""The trace of one run, as the controller records it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Literal

from django_lockstep.lab.explorer.effects.operations import Operation, Origin, line_of
from django_lockstep.lab.explorer.errors import CAUSES
from django_lockstep.lab.explorer.search.branches import Move

Pending = Mapping[int, tuple[str, Origin | None]]
"""The next statement of each actor, with the line that sends it."""


def describe_other_statements(names: Sequence[str], moves: int, before: Pending, now: Pending) -> str:
    """Return a message with both lists of statements, and the usual causes."""
    then, again = ("; ".join(f"{names[i]}: {_at(*sent)}" for i, sent in it.items()) for it in (before, now))
    return (
        f"After {moves} equal moves the next statements of the actors were different from the last time.\n"
        f"Then: {then}\nNow:  {again}\n{CAUSES}"
    )


def _at(text: str, origin: Origin | None) -> str:
    return f"{text} (at {line_of(origin)})" if origin else text


@dataclass(slots=True, kw_only=True)
class StepRecord:
    """One step, from when it is sent."""

    actor: int
    number: int
    operation: Operation
    ended: int | None = None
    waited_for: tuple[int, ...] = ()
    waited_on: str = ""
    woken_by: int | None = None


@dataclass(slots=True)
class Trace:
    """The moves and steps of one run."""

    moves: list[Move] = field(default_factory=list)
    enabled: list[tuple[int, ...]] = field(default_factory=list)
    pending: list[Pending] = field(default_factory=list)
    """The next statements of the ready actors, before each move."""
    steps: list[StepRecord] = field(default_factory=list)
    cycles: list[tuple[frozenset[int], int, str]] = field(default_factory=list)
    """Deadlocks: actors, victim, the server's description."""
    unsteerable: int = 0
    yields: int = 0
    """How often an actor had to yield because it would have got the same answer again."""
    learned_facts: int = 0
    """`ExplorationSession.learned_facts` when the run began."""
    complete: bool = True
    out_of_time: bool = False
    """Whether it was abandoned because the time was over."""

    @property
    def actors(self) -> list[int]:
        """The actor of each move."""
        return [move.actor for move in self.moves]

    @property
    def preemptions(self) -> int:
        """How often an actor that could have gone on was interrupted."""
        pairs = zip(self.moves, self.moves[1:], self.enabled[1:], strict=False)
        return sum(before.actor != after.actor and before.actor in enabled for before, after, enabled in pairs)


MAX_STEPS = 1000
"""Steps that one run may have by default."""


Event = tuple[int, Literal["gate", "woken", "done"], Operation | None]
"""What an actor reports: its index, and that it stands at a gate, holds after a wait, or is done."""


def next_event(events: SimpleQueue[Event], *, timeout: float) -> Event:
    """Return the next event. Raises ``queue.Empty`` if none comes within so many seconds."""
    # Asked without waiting first: mostly the event is there, and a wait begins only on a queue that was found empty.
    try:
        return events.get(block=False)
    except Empty:
        return events.get(timeout=timeout)
