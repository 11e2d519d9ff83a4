"""Which actor waits for which others, before a move and after it.

The first to ask for a row's lock gets it first (README.tuplock in PostgreSQL's sources). A writer that finds, at its
turn, that the row has a newer version must lock that one, too; the next waiter may then overtake it, if it is slow to
wake up. The result is that of the schedule in which the two began to wait in the other order.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["Waits", "has_cycle", "met_by_chance", "overtaken"]

Waits = Mapping[int, frozenset[int]]
"""The actors that each waiting actor waits for."""

_NONE: frozenset[int] = frozenset()


def has_cycle(waits: Waits) -> bool:
    """Whether the waits contain a cycle."""
    for start in waits:
        reached: set[int] = set()
        todo = set(waits[start])
        while todo:
            index = todo.pop()
            if index == start:
                return True
            if index not in reached:
                reached.add(index)
                todo |= waits.get(index, _NONE)
    return False


def overtaken(before: Waits, after: Waits) -> bool:
    """Whether an actor that waited for another waiter now blocks that one."""
    return any(
        behind in after.get(ahead, _NONE) for behind, others in before.items() for ahead in others & before.keys()
    )


def met_by_chance(before: Waits, after: Waits) -> bool:
    """Whether two waiters went on in one move, and one of them by chance got first what the other one now waits for."""
    went_on = {index for index, others in before.items() if after.get(index) != others}
    return any(after.get(index, _NONE) & went_on - before[index] - {index} for index in went_on if index in after)
