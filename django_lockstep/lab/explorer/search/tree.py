"""The schedules of a search as a tree: which ones were run, how each ended, and why the others were not needed.

Built from the states that branches reached; so the search itself keeps nothing for it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from django_lockstep.lab.explorer.search.branches import State
from django_lockstep.lab.explorer.search.schedules import write_schedule

Reason = Literal["asleep", "independent", "left"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A move that was possible and not made."""

    schedule: str
    """From the first move to this one."""
    reason: Reason
    """``asleep``: what begins so was run from an equivalent state, and nothing since depends on the move.
    ``independent``: in no run that passed here did the order of the actor's next move and the others' matter.
    ``left``: the search ended before.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeLine:
    """What was run from a state on: moves without an alternative that was run, up to a fork or to an end."""

    depth: int
    """How many forks lead to it."""
    start: str
    """The moves before."""
    moves: str
    """Empty where several lines begin at once."""
    cuts: tuple[Cut, ...]
    """What was not run along these moves, and at their end."""
    fork: bool
    """Whether several lines follow, one deeper each; otherwise a run ended here."""
    ends: Mapping[int | None, int]
    """How many schedules from here on ended in each outcome, by its position in the exploration; None: abandoned as
    equivalent to another one."""

    @property
    def schedule(self) -> str:
        """All moves up to the fork, or to the end."""
        return self.start + self.moves

    @property
    def uniform(self) -> bool:
        """Whether all schedules that ended have the same outcome, or none."""
        return len(self.ends.keys() - {None}) <= 1


@dataclass(slots=True, eq=False)
class _TreeNode:
    enabled: tuple[int, ...] = ()
    asleep: frozenset[int] = frozenset()
    children: dict[int, _TreeNode] = field(default_factory=dict)
    end: Hashable = None
    """The key of the outcome, where a run ended."""


class TreeBuilder:
    """Takes the branches that were run, each later than the one whose beginning it repeats."""

    def __init__(self) -> None:
        self._root = _TreeNode()

    def add(self, states: Sequence[State], end: Hashable) -> None:
        """Add a run that reached these states; ``end`` is a key of its outcome, or None if it was abandoned."""
        node = self._root
        for state in states:
            if not node.enabled:
                # In a branch that repeats the beginning the siblings that were run sleep, too.
                node.enabled, node.asleep = state.enabled, frozenset(state.sleep)
            node = node.children.setdefault(state.chosen, _TreeNode())
        node.end = end

    def build(self, outcomes: Mapping[Hashable, int], *, finished: bool) -> tuple[TreeLine, ...]:
        """Return the tree, each line before those that it leads to; ``outcomes`` are the positions by key.

        ``finished``: no branch is left, so that what was not run is not needed.
        """
        otherwise: Reason = "independent" if finished else "left"
        lines: list[TreeLine] = []
        # A stack instead of recursion: runs may have more forks than the interpreter has frames.
        waiting: list[tuple[_TreeNode, str, str, int]] = [(self._root, "", "", 0)]
        while waiting:
            node, start, moves, depth = waiting.pop()
            cuts = list(_cuts(node, start + moves, otherwise))
            while len(node.children) == 1:
                ((actor, node),) = node.children.items()
                moves += write_schedule([actor])
                cuts += _cuts(node, start + moves, otherwise)
            ends = {} if node.children else {None if node.end is None else outcomes[node.end]: 1}
            fork = bool(node.children)
            lines.append(TreeLine(depth=depth, start=start, moves=moves, cuts=tuple(cuts), fork=fork, ends=ends))
            waiting += [
                (child, start + moves, write_schedule([actor]), depth + 1)
                for actor, child in sorted(node.children.items(), reverse=True)
            ]
        return tuple(_summed(lines))


def _cuts(node: _TreeNode, schedule: str, otherwise: Reason) -> Iterator[Cut]:
    """Yield what was not run in a state; ``otherwise`` is why, for actors that did not sleep."""
    for actor in node.enabled:
        if actor not in node.children:
            reason: Reason = "asleep" if actor in node.asleep else otherwise
            yield Cut(schedule=schedule + write_schedule([actor]), reason=reason)


def _summed(lines: Sequence[TreeLine]) -> list[TreeLine]:
    """Return the lines with the ends of those that they lead to."""
    summed: list[TreeLine] = []
    below: dict[int, Counter[int | None]] = defaultdict(Counter)
    """The ends of lines at each depth whose fork has not come yet."""
    for line in reversed(lines):
        ends = below.pop(line.depth + 1, Counter()) if line.fork else Counter(line.ends)
        below[line.depth].update(ends)
        ordered = dict(sorted(ends.items(), key=lambda item: (item[0] is None, item[0] or 0)))
        summed.append(replace(line, ends=ordered))
    return summed[::-1]
