"""Races with names: a scenario, and what exploring it has to show. Knows no scenario itself.

Which races there are, the setting ``LOCKSTEP_LAB_RACES`` says, by dotted paths: so the pages and the command show a
project's own races next to the ready-made ones, or instead of them, and nothing here imports anybody's models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from django.utils.module_loading import import_string

from django_lockstep.lab import conf
from django_lockstep.lab.explorer import Exploration
from django_lockstep.lab.scenario import Scenario

__all__ = ["Race", "race_at", "races_at", "registered", "taking_turns"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """A scenario with a name, and what exploring it has to show."""

    name: str
    """What the command calls it."""
    text: str
    """What is raced, in a sentence."""
    scenario: Scenario
    """The race itself."""
    holds: bool = True
    """Whether its invariant holds in every interleaving."""
    deadlocks: bool = False
    """Whether some interleaving deadlocks."""
    waits: frozenset[str] | None = None
    """First words of the statements that wait in some interleaving; None where that is not the point."""
    many: Callable[[int], Scenario] | None = None
    """Makes the same race of more actors; None where only copies of one actor can be added."""

    def as_expected(self, exploration: Exploration) -> bool:
        """Whether the exploration shows what the race is here to show."""
        verdict = "holds" if self.holds else "broken"
        return (
            exploration.verdict == verdict
            and bool(exploration.deadlocks) == self.deadlocks
            and (self.waits is None or self.waits == exploration.waits.keys())
        )

    def with_actors(self, number: int) -> Race:
        """Return the race of that many actors. Raises ``ValueError`` where it has more, or where they play roles."""
        there = list(self.scenario.actors.values())
        if number == len(there):
            return self
        if number < len(there):
            raise ValueError(f"{self.name} has {len(there)} actors, so that {number} are too few")
        if self.many is not None:
            return replace(self, scenario=self.many(number))
        if any(actor is not there[0] for actor in there):
            raise ValueError(f"{self.name} has actors of different roles, so that it cannot have {number}")
        return replace(self, scenario=taking_turns(self.scenario)(number))


def taking_turns(
    scenario: Scenario, *, invariant_of: Callable[[int], Callable[[Any], bool]] | None = None
) -> Callable[[int], Scenario]:
    """Return what makes the scenario one of more actors, who play its roles over and over.

    ``invariant_of`` makes the invariant where it depends on how many actors there are.
    """

    def made(number: int) -> Scenario:
        roles = list(scenario.actors.values())
        return Scenario(
            set_up=scenario.set_up,
            actors=[roles[index % len(roles)] for index in range(number)],
            invariant=invariant_of(number) if invariant_of else scenario.invariant,
            observe=scenario.observe,
        )

    return made


def registered() -> Mapping[str, Race]:
    """Return the races of ``LOCKSTEP_LAB_RACES`` by name; raises as `race_at` does."""
    return races_at(conf.races())


def races_at(paths: Iterable[str]) -> Mapping[str, Race]:
    """Return the races at these dotted paths by name; raises as `race_at` does."""
    return {race.name: race for path in paths for race in _races_at(path)}


def _races_at(path: str) -> Iterator[Race]:
    found = import_string(path)
    if isinstance(found, Mapping):
        yield from (_race(f"{path}[{name!r}]", name, race) for name, race in found.items())
    else:
        yield _race(path, path, found)


def race_at(path: str) -> Race:
    """Return the race at a dotted path; a plain `Scenario` is one that has to hold.

    Raises ``ImportError`` where there is nothing, ``TypeError`` where there is something else.
    """
    return _race(path, path, import_string(path))


def _race(path: str, name: str, found: Any) -> Race:
    if isinstance(found, Race):
        return found
    if not isinstance(found, Scenario):
        raise TypeError(f"{path} is a {type(found).__name__}, not a Scenario")
    return Race(name=name, text="", scenario=found)
