"""The seam between explorations and the searches that choose their schedules."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal, Protocol, get_args

from django_lockstep.lab.explorer.branches import Move, State
from django_lockstep.lab.explorer.directed import DirectedSearch
from django_lockstep.lab.explorer.search import Search

__all__ = ["Reduction", "SearchStrategy", "make_strategy"]

Reduction = Literal["dpor", "symmetric", "none"]


class SearchStrategy(Protocol):
    """Chooses one schedule after another: `begin`, then `choose` and `record` for each move, then `finish`."""

    exhaustive: bool
    """Whether a search with nothing left has covered every interleaving, up to the order of independent steps."""
    symmetric: bool
    """Whether actors with one function begin to write in their order only."""

    @property
    def left(self) -> int:
        """Schedules known and not yet run; each may lead to more."""

    @property
    def states(self) -> Sequence[State]:
        """The states that the current schedule has reached; none of a search without a tree."""

    def begin(self) -> bool:
        """Start the next schedule, or the current one again if it was not finished; False if there is none."""

    def choose(self, enabled: Collection[int]) -> int | None:
        """Return the actor that moves, or None to abandon the schedule because an equivalent one was run."""

    def record(self, move: Move) -> None:
        """Record what the chosen actor's step did."""

    def give_up(self) -> None:
        """Note that the current schedule cannot be run."""

    def finish(self) -> None:
        """End the schedule, and derive from it which others have to be run."""

    def start_over(self) -> None:
        """Forget what rests on the footprints of earlier moves, because they touched more than those say."""


def make_strategy(
    actors: Sequence[object],
    *,
    directed: bool | Collection[str] = False,
    reduction: Reduction = "dpor",
    preemptions: int | None = None,
    processes: int = 1,
    cluster: str | None = None,
) -> SearchStrategy:
    """Return the search with these options of `explore` over actors with these functions.

    Raises ``ValueError`` for options that exclude each other.
    """
    if processes < 1:
        raise ValueError(f"processes must be a positive integer, not {processes}")
    if processes > 1 and cluster is not None:
        raise ValueError(f"processes={processes} explore on this machine, and cluster={cluster!r} elsewhere: name one")
    if reduction not in get_args(Reduction):
        raise ValueError(f"reduction must be {' or '.join(map(repr, get_args(Reduction)))}, not {reduction!r}")
    if not directed:
        return Search(reduce=reduction != "none", symmetric=reduction == "symmetric", preemptions=preemptions)
    if reduction != "dpor" or preemptions is not None:
        raise ValueError(
            f"A directed search runs only schedules around writes: it cannot be combined with reduction={reduction!r} "
            f"or with preemptions"
        )
    if processes > 1:
        raise ValueError(f"A directed search has few schedules and runs in one process, not in {processes}")
    if cluster is not None:
        raise ValueError(f"A directed search has few schedules and runs in one process, not on a cluster ({cluster!r})")
    return DirectedSearch(actors, tables=() if directed is True else directed)
