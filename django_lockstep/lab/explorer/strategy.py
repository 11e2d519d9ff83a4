"""The seam between explorations and the searches that choose their schedules."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from django_lockstep.lab.explorer.branches import Move, State
from django_lockstep.lab.explorer.directed import DirectedSearch
from django_lockstep.lab.explorer.options import ExploreOptions
from django_lockstep.lab.explorer.search import Search

__all__ = ["SearchStrategy", "make_strategy"]


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


def make_strategy(actors: Sequence[object], options: ExploreOptions) -> SearchStrategy:
    """Return the search with these options over actors with these functions."""
    if options.directed:
        return DirectedSearch(actors, tables=() if options.directed is True else options.directed)
    return Search(
        reduce=options.reduction != "none",
        symmetric=options.reduction == "symmetric",
        preemptions=options.preemptions,
    )
