"""The search over schedules: pure, knows neither threads nor databases.

Depth first by replay. Dynamic partial-order reduction (C. Flanagan, P. Godefroid, "Dynamic partial-order reduction for
model checking software", POPL 2005) with source sets and sleep sets (P. Abdulla, S. Aronis, B. Jonsson, K. Sagonas,
"Optimal dynamic partial order reduction", POPL 2014).

Several branches may be run at the same time (Y. Yang, X. Chen, G. Gopalakrishnan, R. Kirby, "Distributed dynamic
partial order reduction", STTT 2010). Their order is that in which they were taken: at one node only earlier branches
sleep in later ones, never the other way round, so that no two of them leave a schedule to each other. One that is still
being run counts as taken, and no other branch is taken at its node until its first move is known: without that move in
its sleep set the later one would run some of the same schedules again, a tenth of all in small random programs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from django_lockstep.lab.explorer.effects.footprints import OPAQUE, of_any_keys
from django_lockstep.lab.explorer.search.branches import Branch, Move, State, related

_NOBODY = -1


@dataclass(slots=True, kw_only=True, eq=False)
class _Node:
    """A state that runs have reached, before their moves; kept as long as something is left to explore from it."""

    enabled: tuple[int, ...]
    sleep: Mapping[int, Move]
    """Moves whose every continuation is explored from an equivalent state."""
    backtrack: set[int]
    """Actors that are to move here, those of branches that have been taken included."""
    parent: _Node | None
    previous: int
    """The actor whose move led here from the parent; `_NOBODY` at the first state."""
    preempted: int
    """Preemptions before this state."""
    running: set[int] = field(default_factory=set)
    """Actors of branches that are being run and begin here."""
    done: dict[int, Move] = field(default_factory=dict)
    """First moves of the other branches that were taken here, in their order."""
    children: dict[int, _Node] = field(default_factory=dict)
    """Where these lead."""

    @property
    def path(self) -> list[_Node]:
        """The nodes from the first state to this one."""
        path, node = [self], self.parent
        while node is not None:
            path.append(node)
            node = node.parent
        return path[::-1]

    def cost(self, actor: int) -> int:
        """Return the number of preemptions if this actor moves next."""
        return self.preempted + (actor != self.previous and self.previous in self.enabled)


class Search:
    """Decides which actor moves next, in this run and in later ones.

    Take branches with `take`, run them, one after the other or several at the same time, and give each to `add`, in any
    order, until none is running and `take` returns None.

    Without ``reduce`` every schedule is run, those that only swap independent steps included.
    """

    exhaustive = True

    def __init__(self, *, reduce: bool = True) -> None:
        self._reduce = reduce
        self._taken = 0
        self.start_over()

    def start_over(self) -> None:
        """Forget everything, because earlier moves touched more than their footprints say."""
        self._root: _Node | None = None
        self._begun = False
        self._running: dict[int, _Node | None] = {}
        """Where the branches that are being run begin, by their numbers."""

    @property
    def left(self) -> int:
        """Branches known and not yet run; each may lead to more."""
        return len(self._running) + (sum(len(_open(node)) for node in self._nodes()) if self._begun else 1)

    def take(self) -> Branch | None:
        """Return a branch to run; None if there is none now, while others run that may lead to more."""
        if not self._begun:
            self._begun = True
            return self._run_from(None, [])
        for node in self._nodes():
            candidates = _open(node)
            if candidates and not (self._reduce and node.running):
                # Fewest preemptions first: explanations of simple schedules are short.
                actor = min(candidates, key=lambda actor: (node.cost(actor), actor))
                node.running.add(actor)
                path = itertools.pairwise(node.path)
                before = [State(enabled=earlier.enabled, chosen=after.previous) for earlier, after in path]
                # Branches that were taken earlier sleep in this one, until a move that they depend on wakes them.
                asleep = {
                    other: replace(move, footprint=of_any_keys(move.footprint)) for other, move in node.done.items()
                }
                fork = State(enabled=node.enabled, chosen=actor, sleep={**node.sleep, **asleep})
                return self._run_from(node, [*before, fork])
        return None

    def add(self, branch: Branch) -> None:
        """Add the states that a branch has reached, and derive from its races which others have to be taken.

        A branch that was taken before `start_over` is ignored.
        """
        if branch.number not in self._running:
            return
        node = self._running.pop(branch.number)
        nodes = node.path if node else []
        if node is not None and branch.unreached:
            # A branch was taken of which nothing is known.
            actor = branch.states[len(nodes) - 1].chosen
            node.running.remove(actor)
            node.done[actor] = Move(actor=actor, footprint=OPAQUE)
            self._drop_finished(node.path)
            return
        # Races between the moves before were looked for after earlier runs.
        fresh = max(0, len(nodes) - 1)
        if node is not None:
            node.running.remove(branch.states[fresh].chosen)
        for state in branch.states[len(nodes) :]:
            parent, before = (nodes[-1], branch.states[len(nodes) - 1]) if nodes else (None, None)
            nodes.append(self._add_node(state, parent=parent, before=before))
        moves = [state.move for state in branch.states if state.move is not None]
        for reached, move in zip(nodes, moves, strict=False):
            reached.done.setdefault(move.actor, move)
        if self._reduce:
            Races(nodes, moves).add_backtracks(fresh)
        self._drop_finished(nodes)

    def _run_from(self, node: _Node | None, beginning: list[State]) -> Branch:
        self._taken += 1
        self._running[self._taken] = node
        return Branch(number=self._taken, states=beginning, reduce=self._reduce)

    def _add_node(self, state: State, *, parent: _Node | None, before: State | None) -> _Node:
        previous = before.chosen if before else _NOBODY
        contested = before is not None and before.move is not None and before.move.contested
        node = _Node(
            enabled=state.enabled,
            sleep=state.sleep,
            # One branch at first; the races of complete runs ask for others, where their order may matter. After a
            # contest each waiter must be first once: it has no move here, so that no race would ask for it.
            backtrack={state.chosen} if self._reduce and not contested else set(state.enabled),
            parent=parent,
            previous=previous,
            preempted=parent.cost(previous) if parent else 0,
        )
        if parent is None:
            self._root = node
        else:
            parent.children[previous] = node
        return node

    def _nodes(self) -> Iterator[_Node]:
        """Yield every node, the earliest branches first, and each node behind those that it leads to."""
        # Depth first, so that a few paths are remembered and not every state that was seen.
        waiting = [(self._root, False)] if self._root else []
        while waiting:
            node, descended = waiting.pop()
            if descended:
                yield node
            else:
                waiting.append((node, True))
                waiting += [(child, False) for child in reversed(node.children.values())]

    def _drop_finished(self, path: list[_Node]) -> None:
        for node in reversed(path):
            if node.children or node.running or _open(node):
                return
            if node.parent is None:
                self._root = None
            else:
                del node.parent.children[node.previous]


def _open(node: _Node) -> set[int]:
    return node.backtrack - node.done.keys() - node.running - node.sleep.keys()


class Races:
    """The happens-before relation of one run, and the races in it that could go the other way round.

    For each move a number has a bit set for every move that happens before it.
    """

    def __init__(self, nodes: Sequence[_Node], moves: Sequence[Move]) -> None:
        self._nodes = nodes
        self._moves = moves
        self._before: list[int] = []
        self._races: dict[int, list[int]] = {}
        for index in range(len(moves)):
            self._order(index)

    def _order(self, index: int) -> None:
        """Find which moves happen before this one, and which of them immediately."""
        before = 0
        self._races[index] = immediate = []
        # From the latest backwards: what is ordered already through a move in between is not a race by itself. Its
        # order can only change together with that move's.
        for earlier in range(index - 1, -1, -1):
            if not before >> earlier & 1 and related(self._moves[earlier], self._moves[index]):
                immediate.append(earlier)
                before |= self._before[earlier] | 1 << earlier
        self._before.append(before)

    def add_backtracks(self, fresh: int) -> None:
        """Add branches so that each race of a move from ``fresh`` on is also run in its other order."""
        for later in range(fresh, len(self._moves)):
            for earlier in self._races[later]:
                if self._reversible(earlier, later):
                    self._add_backtrack(earlier, later)

    def _reversible(self, earlier: int, later: int) -> bool:
        # Steps of one actor have the order of its code. An actor that the earlier move woke was waiting before that, so
        # that it could not have gone first.
        first, second = self._moves[earlier], self._moves[later]
        return second.actor != first.actor and second.actor not in first.woken

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
        rest = [i for i in range(earlier + 1, later) if not self._before[i] >> earlier & 1] + [later]
        first: dict[int, int] = {}
        for index in rest:
            first.setdefault(self._moves[index].actor, index)
        members = sum(1 << index for index in rest)
        return {actor for actor, index in first.items() if not self._before[index] & members}
