"""One run of the search: repeats the beginning of earlier runs, takes another branch there, and goes on to the end.

Pure and picklable, before the run and after it, so that a run can take place in another process. Two things are
specific to databases: a step that begins to wait is a move, and the move that wakes a waiter contains the rest of the
waiter's step.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from django_lockstep.lab.explorer.effects.footprints import Footprint, dependent
from django_lockstep.lab.explorer.errors import Nondeterminism


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One step of one actor, until all actors stand, wait or are done."""

    actor: int
    footprint: Footprint
    """What the step and the woken steps touched, and what they would have published had they not waited or failed."""
    writes: bool = False
    """Whether the statement that it sent writes or locks, or is not understood."""
    tables: frozenset[str] = frozenset()
    """Tables whose rows that statement writes or locks, also under a lock that its transaction holds already."""
    woken: frozenset[int] = frozenset()
    """Actors whose waiting steps ended with it, or that competed then."""
    waits_for: frozenset[int] = frozenset()
    """Actors that hold what the step now waits for."""
    cycle: frozenset[int] = frozenset()
    """Actors of the deadlock that it closed."""
    contested: bool = False
    """Whether the next move is that of the waiter which the server let go on first; `contests` says when."""

    @property
    def participants(self) -> frozenset[int]:
        """All actors that made progress in it."""
        return self.woken | {self.actor}


@dataclass(slots=True, kw_only=True)
class State:
    """One state of a run, before its move."""

    enabled: tuple[int, ...]
    chosen: int
    sleep: Mapping[int, Move] = field(default_factory=dict)
    """Moves whose every continuation is explored from an equivalent state."""
    move: Move | None = None


class Schedule:
    """Chooses the moves of one run: `begin`, then `choose` and `record` for each; after another `begin` the same ones.

    The seam between the driver, which plays schedules, and the searches that choose them.
    """

    unreached = False
    """Whether it cannot be run, because the server never chose as it would have to."""

    def begin(self) -> None:
        """Start the run, or start it again."""
        raise NotImplementedError

    def choose(self, enabled: Collection[int]) -> int | None:
        """Return one of the actors that could move, or None to abandon the run."""
        raise NotImplementedError

    def record(self, move: Move) -> None:
        """Record what the chosen actor's step did."""


@dataclass(slots=True, kw_only=True)
class Branch(Schedule):
    """Chooses the moves of one run of the search, and keeps what they did."""

    number: int
    """By which the search recognizes it."""
    states: list[State]
    """The states that it reaches: before the run those of its beginning, the last of which is where it branches off."""
    reduce: bool
    """Whether it is abandoned where every continuation is explored elsewhere."""
    unreached: bool = False
    _depth: int = 0

    def begin(self) -> None:
        # What it has reached before stays. Stateless: open transactions cannot be saved and restored, so the way back
        # to a branch is to run its beginning again.
        self._depth = 0

    def choose(self, enabled: Collection[int]) -> int | None:
        """Return the actor that moves in this state, or None if every continuation is explored elsewhere.

        In a new state the first of those that are given is preferred. Raises `Nondeterminism` if other actors are ready
        in a state that was reached before.
        """
        ready = tuple(sorted(enabled))
        # On the repeated beginning every move is fixed. If others are ready there, the code depends on something that
        # is not put back between runs, and no later verdict would mean anything.
        if self._depth < len(self.states):
            state = self.states[self._depth]
            if state.enabled != ready:
                raise Nondeterminism(
                    f"At step {self._depth + 1} actors {state.enabled} could move before, and now {ready}"
                )
            return state.chosen
        return self._extend(enabled)

    def record(self, move: Move) -> None:
        self.states[self._depth].move = move
        self._depth += 1

    def _extend(self, enabled: Collection[int]) -> int | None:
        previous = self.states[-1] if self.states else None
        sleep = _asleep_after(previous) if previous and self.reduce else {}
        awake = [actor for actor in enabled if actor not in sleep]
        # Whatever could follow is explored in another order of independent steps: the run is redundant.
        if not awake:
            return None
        # Without preemption as long as possible, so that wrong schedules are found in a simple form first.
        chosen = previous.chosen if previous and previous.chosen in awake else awake[0]
        self.states.append(State(enabled=tuple(sorted(enabled)), chosen=chosen, sleep=sleep))
        return chosen


def _asleep_after(state: State) -> dict[int, Move]:
    """Return what stays asleep after the state's move: what commutes with it."""
    move = state.move
    if move is None:
        raise RuntimeError("the state's move has not been recorded")
    return {
        actor: sleeping
        for actor, sleeping in state.sleep.items()
        # An actor that is now waited for may close a cycle, which it could not before.
        if not (actor in move.participants | move.waits_for or related(sleeping, move))
    }


def related(first: Move, second: Move) -> bool:
    """Whether the order of the two moves may matter."""
    return (
        bool(first.participants & second.participants)
        # Which transaction the server ends, and whether there is a cycle at all, is decided by everyone in it.
        or first.actor in second.cycle
        or second.actor in first.cycle
        or dependent(first.footprint, second.footprint)
    )
