"""Who waits for whom, before a move and after it.

Whoever asks for a row's lock first is served first (README.tuplock in PostgreSQL's sources). A writer who finds, once
it is his turn, that the row has a newer version has to lock that one, too; the next one may then overtake him, if he
is slow to wake up. What comes of that is what comes of the schedule in which the two began to wait in the other order.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["Waits", "has_cycle", "met_by_chance", "overtaken"]

Waits = Mapping[int, frozenset[int]]
"""Whom each of the waiting actors waits for."""

_NOBODY: frozenset[int] = frozenset()


def has_cycle(waits: Waits) -> bool:
    """Whether following who waits for whom leads back to the start."""
    for start in waits:
        reached: set[int] = set()
        todo = set(waits[start])
        while todo:
            index = todo.pop()
            if index == start:
                return True
            if index not in reached:
                reached.add(index)
                todo |= waits.get(index, _NOBODY)
    return False


def overtaken(before: Waits, after: Waits) -> bool:
    """Whether somebody who waited for another waiter now has what that one waits for."""
    return any(
        behind in after.get(ahead, _NOBODY) for behind, others in before.items() for ahead in others & before.keys()
    )


def met_by_chance(before: Waits, after: Waits) -> bool:
    """Whether two waiters went on in one move, and one of them was the first at what the other one now waits for."""
    went_on = {index for index, others in before.items() if after.get(index) != others}
    return any(after.get(index, _NOBODY) & went_on - before[index] - {index} for index in went_on if index in after)
