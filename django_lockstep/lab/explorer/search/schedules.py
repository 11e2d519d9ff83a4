"""Schedules, as short strings and as what chooses them: in ``AABBAB`` A makes two steps, then B two, and so on."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from string import ascii_uppercase

from django_lockstep.lab.explorer.errors import ScheduleError
from django_lockstep.lab.explorer.search.branches import Move, Schedule
from django_lockstep.lab.wording import gettext as _


def write_schedule(moves: Sequence[int]) -> str:
    """Return the moves as a string, one letter for each, A for the first actor of the scenario."""
    return "".join(ascii_uppercase[actor] for actor in moves)


def parse_schedule(schedule: str, *, actors: int) -> tuple[int, ...]:
    """Return the actor of each step, by index. Raises `ScheduleError` for a letter that is not an actor's."""
    letters = ascii_uppercase[:actors]
    for position, letter in enumerate(schedule, start=1):
        if letter not in letters:
            raise ScheduleError(
                _(
                    "Schedule {schedule} has {letter} at step {position}; the actors are {letters}",
                    schedule=repr(schedule),
                    letter=repr(letter),
                    position=position,
                    letters=letters,
                )
            )
    return tuple(map(letters.index, schedule))


def serial_order(moves: Sequence[int]) -> tuple[int, ...]:
    """Return the actors in their order, if each made all its moves before the next one did; nothing otherwise."""
    turns = tuple(actor for actor, _ in itertools.groupby(moves))
    return turns if len(turns) == len(set(turns)) else ()


class Follow(Schedule):
    """Chooses the moves of one schedule; after its end each actor goes on as long as it can."""

    def __init__(self, moves: Sequence[int]) -> None:
        self._moves = moves
        self.begin()

    def begin(self) -> None:
        self._step = 0
        self._previous: int | None = None

    def choose(self, enabled: Collection[int]) -> int | None:
        """Return the actor that moves. Raises `ScheduleError` if it waits or is done."""
        if self._step < len(self._moves):
            chosen = self._moves[self._step]
            if chosen not in enabled:
                possible = write_schedule(sorted(enabled))
                raise ScheduleError(
                    _(
                        "Step {number} is {actor}, which waits or is done; {possible} could move",
                        number=self._step + 1,
                        actor=ascii_uppercase[chosen],
                        possible=possible,
                    )
                )
        else:
            chosen = self._previous if self._previous in enabled else min(enabled)  # type: ignore[assignment]
        self._step += 1
        self._previous = chosen
        return chosen


class SinglePreemption(Schedule):
    """Chooses the moves of a schedule in which one actor is interrupted once.

    It makes so many ``steps``, or all that it can; then the others, in turn from the next one on, go on as long as they
    can; then it goes on itself. An actor that waits is passed over, and goes on later.
    """

    def __init__(self, actor: int, *, steps: int | None, actors: int) -> None:
        self.actor = actor
        self.steps = steps
        self.moves: list[Move] = []
        self._others = [(actor + number) % actors for number in range(1, actors)]
        self.begin()

    def begin(self) -> None:
        self.moves.clear()
        self._made = 0
        self._before = self._meanwhile = True
        self._previous = self.actor

    def choose(self, enabled: Collection[int]) -> int:
        self._before = self._before and self._made != self.steps and self.actor in enabled
        # Once all the others stand, the interruption is over, even if some could go on later.
        self._meanwhile = self._before or (self._meanwhile and any(actor in enabled for actor in self._others))
        order = [self.actor] if self._before else self._others if self._meanwhile else [self.actor, *self._others]
        able = [actor for actor in order if actor in enabled]
        self._previous = self._previous if self._previous in able else able[0]
        self._made += 1
        return self._previous

    def record(self, move: Move) -> None:
        self.moves.append(move)
