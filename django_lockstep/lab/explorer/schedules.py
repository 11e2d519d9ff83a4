"""Schedules as short strings: in ``AABBAB`` the first actor makes two steps, then the second one two, and so on."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from string import ascii_uppercase

from django_lockstep.lab.explorer.errors import ScheduleError

__all__ = ["Follow", "parse_schedule", "write_schedule"]


def write_schedule(moves: Sequence[int]) -> str:
    """Return the moves as a string, one letter for each, A for the first actor of the scenario."""
    return "".join(ascii_uppercase[actor] for actor in moves)


def parse_schedule(schedule: str, *, actors: int) -> tuple[int, ...]:
    """Return the actor of each step, by index. Raises `ScheduleError` for a letter that is not an actor's."""
    letters = ascii_uppercase[:actors]
    for position, letter in enumerate(schedule, start=1):
        if letter not in letters:
            raise ScheduleError(f"Schedule {schedule!r} has {letter!r} at step {position}; the actors are {letters}")
    return tuple(map(letters.index, schedule))


class Follow:
    """Chooses the moves of one schedule; after its end each actor goes on as long as it can."""

    def __init__(self, moves: Sequence[int]) -> None:
        self._moves = moves
        self._step = 0
        self._previous: int | None = None

    def choose(self, enabled: Collection[int]) -> int | None:
        """Return the actor that moves. Raises `ScheduleError` if it waits or is done."""
        if self._step < len(self._moves):
            chosen = self._moves[self._step]
            if chosen not in enabled:
                possible = write_schedule(sorted(enabled))
                raise ScheduleError(
                    f"Step {self._step + 1} is {ascii_uppercase[chosen]}, which waits or is done; {possible} could move"
                )
        else:
            chosen = self._previous if self._previous in enabled else min(enabled)  # type: ignore[assignment]
        self._step += 1
        self._previous = chosen
        return chosen
