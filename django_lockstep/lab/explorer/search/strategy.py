"""The seam between the driver, which plays schedules, and the searches that choose them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from django_lockstep.lab.explorer.search.branches import Move, State

__all__ = ["Chooser", "Schedule", "SearchStrategy"]


class Chooser(Protocol):
    """Decides which actor moves."""

    def choose(self, enabled: Collection[int]) -> int | None:
        """Return one of the actors that could move, or None to abandon the run."""


class Schedule(Chooser, Protocol):
    """Chooses the moves of one schedule, and can choose the same ones again: `choose` and `record` for each move."""

    symmetric: bool
    """Whether actors with one function begin to write in their order only."""

    def begin(self) -> object:
        """Start the schedule, or start it again."""

    def record(self, move: Move) -> None:
        """Record what the chosen actor's step did."""

    def give_up(self) -> None:
        """Note that the schedule cannot be run, because the server never chose as it would have to."""


class SearchStrategy(Schedule, Protocol):
    """Chooses one schedule after another: `begin`, then those of `Schedule`, then `finish`."""

    exhaustive: bool
    """Whether a search with nothing left has covered every interleaving, up to the order of independent steps."""

    @property
    def left(self) -> int:
        """Schedules known and not yet run; each may lead to more."""

    @property
    def states(self) -> Sequence[State]:
        """The states that the current schedule has reached; none of a search without a tree."""

    def begin(self) -> bool:
        """Start the next schedule, or the current one again if it was not finished; False if there is none."""

    def finish(self) -> None:
        """End the schedule, and derive from it which others have to be run."""

    def start_over(self) -> None:
        """Forget what rests on the footprints of earlier moves, because they touched more than those say."""
