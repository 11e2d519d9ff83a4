"""Which actor waits for which others, before a move and after it.

The first to ask for a row's lock gets it first (README.tuplock in PostgreSQL's sources). A writer that finds, at its
turn, that the row has a newer version must lock that one, too; the next waiter may then overtake it, if it is slow to
wake up. The result is that of the schedule in which the two began to wait in the other order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

from django_lockstep.lab.explorer.search.branches import Move, related

Waits = Mapping[int, frozenset[int]]
"""The actors that each waiting actor waits for."""

_NONE: frozenset[int] = frozenset()


def has_cycle(waits: Waits) -> bool:
    """Whether the waits contain a cycle."""
    try:
        TopologicalSorter(waits).prepare()
    except CycleError:
        return True
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


# Waiters of which the server lets any one go on first.
#
# Those who ask for one version of a row queue for it. If that version is replaced, all of them have to ask for the next
# one, and whichever does so first gets it (heapam_tuple_lock in the server's sources). A search has to run each of
# these orders that is not another schedule anyway. So the choice is a state of its own, in which each of them can move.
# Its schedule has a letter more, and is run again until the server has chosen as the schedule says.


class Contest(NamedTuple):
    """Waiters that raced for what one of them then got."""

    turn: Move
    """The winner's move."""
    contenders: frozenset[int]
    others: tuple[int, ...]
    """Those that have to be tried as winners, too."""

    @property
    def candidates(self) -> tuple[int, ...]:
        """Those that could move, the winner first."""
        return self.turn.actor, *self.others


def first_ones(begun: Mapping[int, int], moves: Sequence[Move]) -> frozenset[int]:
    """Return the contenders that have to go first in some run; ``begun`` has with which moves they began to wait.

    Of two that began one after the other, with nothing in between that matters to the first one, the later one goes
    first in another schedule, in which it began first.
    """
    firsts: set[int] = set()
    together: list[int] = []
    for actor in sorted(begun, key=lambda waiter: begun[waiter]):
        if not together or any(_is_cut_off(begun[waiter], begun[actor], begun, moves) for waiter in together):
            firsts.add(actor)
            together = []
        together.append(actor)
    return frozenset(firsts)


def _is_cut_off(earlier: int, later: int, begun: Mapping[int, int], moves: Sequence[Move]) -> bool:
    """Whether a move between these two, other than those with which contenders began to wait, matters to the first."""
    between = set(range(earlier + 1, later)) - set(begun.values())
    return any(related(moves[earlier], moves[number]) for number in between)
