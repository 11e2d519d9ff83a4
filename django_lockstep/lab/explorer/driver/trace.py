"""The trace of one run, as the controller records it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from django_lockstep.lab.explorer.driver.differences import Pending
from django_lockstep.lab.explorer.effects.operations import Operation
from django_lockstep.lab.explorer.search.branches import Move

__all__ = ["StepRecord", "Trace"]


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
    unreached: bool = False
    """Whether it could not be made, because the server never chose as it would have to."""
    symmetric: bool = False
    """Whether actors with one function began to write in their order only."""
    out_of_time: bool = False
    """Whether it was abandoned because the time was over."""

    @property
    def actors(self) -> list[int]:
        """The actor of each move."""
        return [move.actor for move in self.moves]

    @property
    def serial_order(self) -> tuple[int, ...]:
        """The actors in their order, if each made all its moves before the next one did; empty if they interleaved."""
        turns = [actor for actor, _ in itertools.groupby(self.actors)]
        return tuple(turns) if len(turns) == len(set(turns)) else ()

    @property
    def preemptions(self) -> int:
        """How often an actor that could have gone on was interrupted."""
        pairs = zip(self.moves, self.moves[1:], self.enabled[1:], strict=False)
        return sum(before.actor != after.actor and before.actor in enabled for before, after, enabled in pairs)
