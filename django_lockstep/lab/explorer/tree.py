"""The schedules of a search as a tree: which ones were run, how each ended, and why the others were not needed.

Built from the states that branches reached; so the search itself keeps nothing for it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from django_lockstep.lab.explorer.branches import State
from django_lockstep.lab.explorer.schedules import write_schedule

__all__ = ["Cut", "Tree", "TreeBuilder"]

Reason = Literal["asleep", "independent", "bound", "left"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A move that was possible and not made."""

    schedule: str
    """From the first move to this one."""
    reason: Reason
    """``asleep``: what begins so was run from an equivalent state, and nothing since depends on the move.
    ``independent``: in no run that passed here did the order of the actor's next move and the others' matter.
    ``bound``: it would be one preemption too many. ``left``: the search ended before.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """What was run from a state on: moves of which each had no sibling that was run, then several ways, or an end."""

    start: str
    """The moves before."""
    moves: str
    """The moves in which only one way was gone; empty where several begin at once."""
    cuts: tuple[Cut, ...]
    """What was not run along these moves, and at their end."""
    ways: tuple[Tree, ...]
    """What was run then; none at an end, and otherwise at least two."""
    ends: Mapping[int | None, int]
    """How many schedules ended in each outcome, by its position in the exploration; None: abandoned as equivalent."""

    @property
    def schedule(self) -> str:
        """All moves up to the first fork, or to the end."""
        return self.start + self.moves

    @property
    def uniform(self) -> bool:
        """Whether all schedules that ended have the same outcome, or none."""
        return len(self.ends.keys() - {None}) <= 1


@dataclass(slots=True, eq=False)
class _Node:
    enabled: tuple[int, ...] = ()
    asleep: frozenset[int] = frozenset()
    children: dict[int, _Node] = field(default_factory=dict)
    end: Hashable = None
    """The key of the outcome, where a run ended."""


class TreeBuilder:
    """Takes the branches that were run, each later than the one whose beginning it repeats."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything, as `Search.start_over` does."""
        self._root = _Node()

    def add(self, states: Sequence[State], end: Hashable) -> None:
        """Add a run that reached these states; ``end`` is a key of its outcome, or None if it was abandoned."""
        node = self._root
        for state in states:
            if not node.enabled:
                # In a branch that repeats the beginning the siblings that were run sleep, too.
                node.enabled, node.asleep = state.enabled, frozenset(state.sleep)
            node = node.children.setdefault(state.chosen, _Node())
        node.end = end

    def build(self, outcomes: Mapping[Hashable, int], *, finished: bool, bounded: bool) -> Tree:
        """Return the tree; ``outcomes`` are the positions by key.

        ``finished``: no branch is left, so that what was not run is not needed. ``bounded``: or has more preemptions
        than were allowed.
        """
        otherwise: Reason = "bound" if bounded else "independent" if finished else "left"
        return _Build(outcomes, otherwise).tree(self._root, "")


@dataclass(frozen=True, slots=True)
class _Build:
    outcomes: Mapping[Hashable, int]
    otherwise: Reason
    """Why an actor that did not sleep was not run."""

    def tree(self, node: _Node, start: str) -> Tree:
        moves, cuts = "", list(self._cuts(node, start))
        while len(node.children) == 1:
            ((actor, node),) = node.children.items()
            moves += write_schedule([actor])
            cuts += self._cuts(node, start + moves)
        ways = [
            self._way(child, start + moves, letter=write_schedule([actor]))
            for actor, child in sorted(node.children.items())
        ]
        own = {} if ways else {None if node.end is None else self.outcomes[node.end]: 1}
        return Tree(start=start, moves=moves, cuts=tuple(cuts), ways=tuple(ways), ends=_sum([own, *_ends(ways)]))

    def _way(self, node: _Node, start: str, *, letter: str) -> Tree:
        below = self.tree(node, start + letter)
        return Tree(start=start, moves=letter + below.moves, cuts=below.cuts, ways=below.ways, ends=below.ends)

    def _cuts(self, node: _Node, schedule: str) -> Iterator[Cut]:
        for actor in node.enabled:
            if actor not in node.children:
                reason: Reason = "asleep" if actor in node.asleep else self.otherwise
                yield Cut(schedule=schedule + write_schedule([actor]), reason=reason)


def _ends(ways: Sequence[Tree]) -> Iterator[Mapping[int | None, int]]:
    return (way.ends for way in ways)


def _sum(counts: Sequence[Mapping[int | None, int]]) -> dict[int | None, int]:
    keys = {key for each in counts for key in each}
    ordered = sorted(keys, key=lambda key: (key is None, key or 0))
    return {key: sum(each.get(key, 0) for each in counts) for key in ordered}
