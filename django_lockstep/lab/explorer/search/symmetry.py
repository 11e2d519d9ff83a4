"""Symmetry: of actors with one and the same function only one order of their first writes is run.

Exchanging the names of such actors changes no program, so that each interleaving ends like one in which they begin to
write or lock in the order of the scenario (E. Clarke, R. Enders, T. Filkorn, S. Jha, "Exploiting symmetry in temporal
logic model checking", Formal Methods in System Design 1996). An actor waits for its admission before its first write,
while it holds no lock on a row; so this is one more rule of what may follow what, to which the reduction applies as to
any.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

__all__ = ["Admissions", "exchanges", "originals"]


def originals(functions: Sequence[object]) -> list[int]:
    """Return for each actor the first one with the same function."""
    return [functions.index(function) for function in functions]


def exchanges(functions: Sequence[object]) -> Iterator[tuple[int, ...]]:
    """Yield every order of the actors in which each place keeps its function."""
    roles = originals(functions)
    groups = [[actor for actor, role in enumerate(roles) if role == each] for each in dict.fromkeys(roles)]
    for orders in itertools.product(*map(itertools.permutations, groups)):
        moved = dict(zip(itertools.chain(*groups), itertools.chain(*orders), strict=True))
        yield tuple(moved[actor] for actor in range(len(roles)))


class Admissions:
    """Which actors of one run may begin to write: each after the one before it with the same function has begun to.

    One that ends without a write admits the next one, too.
    """

    def __init__(self, functions: Sequence[Callable[[Any], Any]]) -> None:
        last: dict[int, int] = {}
        self._after: dict[int, int] = {}
        """The actors that have to be admitted, and by whom."""
        for actor, original in enumerate(originals(functions)):
            if original in last:
                self._after[actor] = last[original]
            last[original] = actor
        self._begun: set[int] = set()

    def holds_back(self, actor: int) -> bool:
        """Whether the actor may not write yet."""
        return self._after.get(actor, actor) not in {actor} | self._begun

    def is_first(self, actor: int) -> bool:
        """Whether a write of this actor is its first one, for which it had to be admitted."""
        return actor in self._after and actor not in self._begun

    def note_begun(self, actors: Iterable[int]) -> frozenset[int]:
        """Note that these actors have begun to write, or have ended; return those that they admit by that."""
        new = set(actors) - self._begun
        self._begun |= new
        return frozenset(actor for actor, before in self._after.items() if before in new)
