"""Chains of waits as trees: a session that waits for no other one is a root, and those that wait for it are below."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from django_lockstep.monitor.report import Session, Wait


@dataclass(slots=True, kw_only=True)
class Node:
    """A session in the trees; each session appears once, as near to a root as possible."""

    session: Session
    wait: Wait | None = None
    """What it waits for; None for a root, unless sessions wait in a cycle."""
    behind: int = 0
    """How many sessions wait for it, directly or indirectly."""
    ahead: int = 0
    """How many of its blockers do not hold the lock but are before it in the queue."""
    more_blockers: tuple[Session, ...] = ()
    """The sessions that it waits for in addition to its parent."""
    children: list[Node] = field(default_factory=list)
    """The sessions that wait for it and are placed here, the longest wait first."""


def trees(waits: Sequence[Wait]) -> list[Node]:
    """Return the roots with the sessions that wait behind them; the root with the most of them comes first.

    Of sessions that wait in a cycle (a deadlock that the server has not ended yet) one becomes a root.
    """
    return _Forest(waits).roots()


class _Forest:
    """Builds the trees: which sessions wait behind which, and which are placed already."""

    def __init__(self, waits: Sequence[Wait]) -> None:
        self._waiting = {wait.waiter.id: wait for wait in waits}
        self._queues = {wait.waiter.id: wait.lock for wait in waits}
        self._followers: dict[str, list[Wait]] = defaultdict(list)
        for wait in waits:
            for blocker in self._blocking(wait):
                self._followers[blocker.id].append(wait)
        self._placed: set[str] = set()

    def roots(self) -> list[Node]:
        blockers = {blocker.id: blocker for wait in self._waiting.values() for blocker in wait.blockers}
        roots = [self._node(blocker) for blocker in blockers.values() if blocker.id not in self._waiting]
        roots.sort(key=lambda node: node.behind, reverse=True)
        self._plant(roots)
        # What is not placed yet waits in a cycle, or for one.
        for wait in self._waiting.values():
            if wait.waiter.id not in self._placed:
                roots.append(self._node(wait.waiter))
                self._plant(roots[-1:])
        return roots

    def _plant(self, roots: Sequence[Node]) -> None:
        """Go through the waiters breadth first, so that each is placed as near to a root as possible."""
        self._placed |= {root.session.id for root in roots}
        queue = deque(roots)
        while queue:
            node = queue.popleft()
            for wait in self._followers[node.session.id]:
                if wait.waiter.id not in self._placed:
                    self._placed.add(wait.waiter.id)
                    node.children.append(self._node(wait.waiter, under=node.session))
                    queue.append(node.children[-1])

    def _node(self, session: Session, *, under: Session | None = None) -> Node:
        wait = self._waiting.get(session.id)
        obstacles = self._blocking(wait) if wait else ()
        return Node(
            session=session,
            wait=wait,
            behind=self._count_behind(session),
            ahead=len(wait.blockers) - len(obstacles) if wait else 0,
            more_blockers=tuple(blocker for blocker in obstacles if under is None or blocker.id != under.id),
        )

    def _count_behind(self, session: Session) -> int:
        visited, pending = {session.id}, [session.id]
        while pending:
            new = {wait.waiter.id for wait in self._followers[pending.pop()]} - visited
            visited |= new
            pending += new
        return len(visited) - 1

    def _blocking(self, wait: Wait) -> Sequence[Session]:
        """Return the blockers that hold the lock, or all if none does: a queue for one lock is not a chain."""
        holders = [blocker for blocker in wait.blockers if self._queues.get(blocker.id) != wait.lock]
        return holders or wait.blockers
