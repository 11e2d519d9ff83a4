"""The search over schedules: pure, knows neither threads nor databases.

Depth first by replay. Dynamic partial-order reduction (C. Flanagan, P. Godefroid, "Dynamic partial-order reduction for
model checking software", POPL 2005) with source sets and sleep sets (P. Abdulla, S. Aronis, B. Jonsson, K. Sagonas,
"Optimal dynamic partial order reduction", POPL 2014). Two things are specific to databases: a step that begins to
wait is a move, and the move that wakes a waiter contains the rest of the waiter's step.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from django_lockstep.lab.explorer.errors import Nondeterminism
from django_lockstep.lab.explorer.footprints import Footprint, dependent

__all__ = ["Move", "Search"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One step of one actor, until all actors stand, wait or are done."""

    actor: int
    footprint: Footprint
    """What the step and the woken steps touched."""
    writes: bool = False
    """Whether the statement that it sent writes or locks, or is not understood."""
    woken: frozenset[int] = frozenset()
    """Actors whose waiting steps ended with it."""
    waits_for: frozenset[int] = frozenset()
    """Actors that hold what the step now waits for."""
    cycle: frozenset[int] = frozenset()
    """Actors of the deadlock that it closed."""

    @property
    def participants(self) -> frozenset[int]:
        """All actors that made progress in it."""
        return self.woken | {self.actor}


@dataclass(slots=True)
class _Node:
    """One state on the current path, before its move."""

    enabled: tuple[int, ...]
    previous: int | None
    preempted: int
    """Preemptions before this state."""
    sleep: dict[int, Move]
    """Moves whose every continuation was explored from an equivalent state."""
    chosen: int
    backtrack: set[int]
    move: Move | None = None
    done: dict[int, Move] = field(default_factory=dict)

    def cost(self, actor: int) -> int:
        """Return the number of preemptions if this actor moves next."""
        switched = self.previous is not None and actor != self.previous and self.previous in self.enabled
        return self.preempted + switched


class Search:
    """Decides which actor moves next, in this run and in later ones.

    Call `begin` before each run, `choose` and `record` for each move, `finish` after the run, until `begin` returns
    False. ``reduce`` leaves out schedules that only swap independent steps. ``preemptions`` bounds how often an actor
    that could go on is interrupted; partial-order reduction is not complete under such a bound (K. Coons, M. Musuvathi,
    K. McKinley, "Bounded partial-order reduction", OOPSLA 2013), so that the search then takes every schedule within
    it.
    """

    exhaustive = True

    def __init__(self, *, reduce: bool = True, preemptions: int | None = None) -> None:
        self._reduce = reduce and preemptions is None
        self._bound = preemptions
        self._path: list[_Node] = []
        self._depth = 0
        self._fresh = 0
        self._exhausted = False
        self.cut = 0
        """Branches left out by the bound."""

    def begin(self) -> bool:
        """Start the next run; False if there is none."""
        # Stateless: open transactions cannot be saved and restored, so the way back to a branch is to run its beginning
        # again.
        self._depth = 0
        return not self._exhausted

    def start_over(self) -> None:
        """Forget everything, because earlier moves touched more than their footprints say."""
        self._path.clear()
        self.cut = 0

    @property
    def left(self) -> int:
        """Branches known and not yet taken; each may lead to more."""
        open_branches = sum(len(self._open(node)) for node in self._path)
        return self.cut + (0 if self._exhausted else open_branches + 1)

    def choose(self, enabled: Collection[int]) -> int | None:
        """Return the actor that moves in this state, or None if every continuation has been explored.

        Raises `Nondeterminism` if other actors are ready in a state that was reached before.
        """
        ready = tuple(sorted(enabled))
        # On the repeated beginning every move is fixed. If others are ready there, the code depends on something that
        # is not put back between runs, and no later verdict would mean anything.
        if self._depth < len(self._path):
            node = self._path[self._depth]
            if node.enabled != ready:
                raise Nondeterminism(
                    f"At step {self._depth + 1} actors {node.enabled} could move before, and now {ready}"
                )
            return node.chosen
        return self._extend(ready)

    def record(self, move: Move) -> None:
        """Record what the chosen actor's step did."""
        self._path[self._depth].move = move
        self._depth += 1

    def finish(self) -> None:
        """Derive from the run which branches have to be taken, and choose the next."""
        # Under a bound on preemptions every branch within it is taken, and no race has to be looked for.
        if self._reduce:
            _Races(self._path).add_backtracks(self._fresh)
        while self._path:
            node = self._path[-1]
            if node.move is not None:
                node.done[node.chosen] = node.move
            candidates = self._open(node)
            self._count_cut(node)
            if candidates:
                node.chosen, node.move = self._preferred(node, candidates), None
                # Races of the moves before were looked for after earlier runs.
                self._fresh = len(self._path) - 1
                return
            # Depth first, so that one path is remembered and not every state that was seen.
            self._path.pop()
        self._exhausted = True

    def _extend(self, ready: tuple[int, ...]) -> int | None:
        parent = self._path[-1] if self._path else None
        previous = parent.chosen if parent else None
        sleep = _asleep_after(parent) if parent and self._reduce else {}
        awake = [actor for actor in ready if actor not in sleep]
        # Whatever could follow was explored in another order of independent steps: the run is redundant.
        if not awake:
            return None
        # Without preemption as long as possible, so that wrong schedules are found in a simple form first.
        chosen = previous if previous is not None and previous in awake else awake[0]
        node = _Node(
            enabled=ready,
            previous=previous,
            preempted=parent.cost(parent.chosen) if parent else 0,
            sleep=sleep,
            chosen=chosen,
            # One branch at first; the races of complete runs ask for others, where their order may matter.
            backtrack={chosen} if self._reduce else set(ready),
        )
        self._path.append(node)
        return chosen

    def _open(self, node: _Node) -> list[int]:
        return [
            actor
            for actor in sorted(node.backtrack)
            if actor not in node.done and actor not in node.sleep and self._allowed(node, actor)
        ]

    def _allowed(self, node: _Node, actor: int) -> bool:
        return self._bound is None or node.cost(actor) <= self._bound

    def _count_cut(self, node: _Node) -> None:
        if len(node.done) == 1:
            self.cut += sum(not self._allowed(node, actor) for actor in node.backtrack - node.done.keys())

    @staticmethod
    def _preferred(node: _Node, candidates: list[int]) -> int:
        # Fewest preemptions first: explanations of simple schedules are short.
        return min(candidates, key=lambda actor: (node.cost(actor), actor))


def _asleep_after(node: _Node) -> dict[int, Move]:
    """Return what stays asleep after the node's move: what commutes with it."""
    move = node.move
    if move is None:
        raise RuntimeError("the node's move has not been recorded")
    return {
        actor: known
        # A branch that was explored sleeps in its later siblings, until a move that it depends on wakes it.
        for actor, known in {**node.sleep, **node.done}.items()
        # An actor that is now waited for may close a cycle, which it could not before.
        if actor not in move.participants and actor not in move.waits_for and not _related(known, move)
    }


def _related(one: Move, other: Move) -> bool:
    """Whether the order of the two moves may matter."""
    return (
        bool(one.participants & other.participants)
        # Which transaction the server ends, and whether there is a cycle at all, is decided by everyone in it.
        or one.actor in other.cycle
        or other.actor in one.cycle
        or dependent(one.footprint, other.footprint)
    )


class _Races:
    """The happens-before relation of one run, and the races in it that could go the other way round."""

    def __init__(self, path: list[_Node]) -> None:
        self._nodes = [node for node in path if node.move is not None]
        self._moves = [node.move for node in self._nodes if node.move is not None]
        self._before: list[set[int]] = []
        self._races: list[list[int]] = []
        for index in range(len(self._moves)):
            self._order(index)

    def _order(self, index: int) -> None:
        """Find which moves happen before this one, and which of them immediately."""
        before: set[int] = set()
        immediate = []
        # From the latest backwards: what is ordered already through a move in between is not a race by itself. Its
        # order can only change together with that move's.
        for earlier in range(index - 1, -1, -1):
            if _related(self._moves[earlier], self._moves[index]):
                if earlier not in before:
                    immediate.append(earlier)
                before |= self._before[earlier] | {earlier}
        self._before.append(before)
        self._races.append(immediate)

    def add_backtracks(self, fresh: int) -> None:
        """Add branches so that each race of a move from ``fresh`` on is also run in its other order."""
        for later in range(fresh, len(self._moves)):
            for earlier in self._races[later]:
                if self._reversible(earlier, later):
                    self._add_backtrack(earlier, later)

    def _reversible(self, earlier: int, later: int) -> bool:
        # Steps of one actor have the order of its code. An actor that the earlier move woke was waiting before that, so
        # that it could not have gone first.
        actor = self._moves[later].actor
        return actor != self._moves[earlier].actor and actor not in self._moves[earlier].woken

    def _add_backtrack(self, earlier: int, later: int) -> None:
        node = self._nodes[earlier]
        initials = self._initials(earlier, later)
        # One of the initials suffices (source sets); a sleeping one has been explored already.
        if initials & (node.backtrack | node.sleep.keys()):
            return
        possible = sorted(initials & set(node.enabled))
        actor = self._moves[later].actor
        if actor in possible:
            node.backtrack.add(actor)
        elif possible:
            node.backtrack.add(possible[0])
        else:
            # None of the initials can move here, so all actors are tried.
            node.backtrack |= set(node.enabled)

    def _initials(self, earlier: int, later: int) -> set[int]:
        """Return the actors that may come first without the earlier move: Abdulla et al. 2014, definition 4.2."""
        # What depends on the earlier move cannot happen without it.
        rest = [i for i in range(earlier + 1, later) if earlier not in self._before[i]] + [later]
        first: dict[int, int] = {}
        for index in rest:
            first.setdefault(self._moves[index].actor, index)
        members = set(rest)
        return {actor for actor, index in first.items() if not self._before[index] & members}
