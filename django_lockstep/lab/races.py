"""Named races: a scenario, and the result that exploring it must have.

The setting ``LOCKSTEP_LAB_RACES`` lists the races by dotted paths: so the pages and the command show a project's own
races beside the ready-made ones, or instead of them, and nothing here imports models of a project.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from django.utils.module_loading import import_string

from django_lockstep.lab import conf
from django_lockstep.lab.explorer import Exploration
from django_lockstep.lab.scenario import Scenario

__all__ = [
    "Race",
    "find_race",
    "load_races",
    "load_scenario",
    "named_races",
    "registered_races",
    "repeat_roles",
    "replay_test",
]

ANOMALIES = "django_lockstep.lab.anomalies.RACES"
"""The dotted path of the isolation anomalies, which every project has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """A scenario with a name, and the result that exploring it must have."""

    name: str
    """Its name in the command and on pages."""
    text: str
    """What is raced, in a sentence."""
    scenario: Scenario
    """What is explored."""
    holds: bool = True
    """Whether its invariant must hold in every interleaving, or be broken in some."""
    deadlocks: bool = False
    """Whether some interleaving must deadlock."""
    waits: frozenset[str] | None = None
    """First words of the statements that must wait in some interleaving; None if that does not matter."""
    code: tuple[Callable[..., Any], ...] = ()
    """Functions that pages show beside those of the actors, such as a method that actors call."""
    many: Callable[[int], Scenario] | None = None
    """Returns the same race with more actors; None if only copies of one actor can be added."""

    def as_expected(self, exploration: Exploration) -> bool:
        """Whether the exploration has the expected result; a directed one need not meet every deadlock and wait."""
        waits = self.waits is None or self.waits == exploration.waits.keys()
        deadlocks = bool(exploration.deadlocks) == self.deadlocks
        # A directed search runs few schedules: it may miss a deadlock or a wait, but must not find one that is not
        # expected.
        if exploration.directed:
            waits = self.waits is None or self.waits >= exploration.waits.keys()
            deadlocks = self.deadlocks or not exploration.deadlocks
        return (exploration.passed if self.holds else exploration.verdict == "broken") and deadlocks and waits

    def with_actors(self, number: int) -> Race:
        """Return the race with that many actors. Raises ``ValueError`` if it has more, or if its actors differ."""
        actors = list(self.scenario.actors.values())
        if number == len(actors):
            return self
        if number < len(actors):
            raise ValueError(f"{self.name} has {len(actors)} actors; {number} are too few")
        if self.many is not None:
            return replace(self, scenario=self.many(number))
        if any(actor is not actors[0] for actor in actors):
            raise ValueError(f"{self.name} has actors with different roles and cannot have {number}")
        return replace(self, scenario=repeat_roles(self.scenario)(number))


def repeat_roles(
    scenario: Scenario, *, invariant_of: Callable[[int], Callable[[Any], bool]] | None = None
) -> Callable[[int], Scenario]:
    """Return a function that builds the scenario with more actors, which repeat its roles.

    ``invariant_of`` returns the invariant if it depends on the number of actors.
    """

    def build(number: int) -> Scenario:
        roles = list(scenario.actors.values())
        return Scenario(
            set_up=scenario.set_up,
            actors=[roles[index % len(roles)] for index in range(number)],
            invariant=invariant_of(number) if invariant_of else scenario.invariant,
            observe=scenario.observe,
        )

    return build


def registered_races() -> Mapping[str, Race]:
    """Return the races of ``LOCKSTEP_LAB_RACES`` by name; raises as `load_races` does."""
    return load_races(conf.races())


def named_races() -> Mapping[str, Race]:
    """Return the races that have a name in commands and on pages: the registered ones, and the anomalies."""
    return {**load_races([ANOMALIES]), **registered_races()}


def find_race(name: str, *, actors: int | None = None) -> Race:
    """Return the registered race of this name, or the scenario at this dotted path, with so many actors.

    A plain `Scenario` is a race that must hold. Raises ``ValueError`` where there is neither, or not with so many;
    ``TypeError`` if there is something else.
    """
    races = named_races()
    try:
        race = races[name] if name in races else _as_race(name, name, import_string(name))
    except ImportError as error:
        raise ValueError(
            f"{name!r} is neither a registered scenario (see --list) nor a dotted path: {error}"
        ) from error
    return race if actors is None else race.with_actors(actors)


def load_scenario(name: str, *, actors: int | None = None) -> Scenario:
    """Return the scenario that `find_race` finds; in another process, of which only the name is known here."""
    return find_race(name, actors=actors).scenario


def load_races(paths: Iterable[str]) -> Mapping[str, Race]:
    """Return the races at these dotted paths by name, of races, scenarios and mappings of these.

    Raises ``ImportError`` if there is nothing, ``TypeError`` if there is something else.
    """
    return {race.name: race for path in paths for race in _load_from(path)}


def _load_from(path: str) -> Iterator[Race]:
    value = import_string(path)
    if isinstance(value, Mapping):
        yield from (_as_race(f"{path}[{name!r}]", name, race) for name, race in value.items())
    else:
        yield _as_race(path, path, value)


def _as_race(path: str, name: str, value: Any) -> Race:
    if isinstance(value, Race):
        return value
    if not isinstance(value, Scenario):
        raise TypeError(f"{path} is a {type(value).__name__}, not a Scenario")
    return Race(name=name, text="", scenario=value)


_REPLAY = """\
import pytest
from django_lockstep.lab.races import find_race


@pytest.mark.django_db(transaction=True)
def test_{schedule}(race):
    scenario = find_race({name}).scenario
{prepare}    race.replay(
        "{schedule}",
        scenario.actors,
        set_up=scenario.set_up,
        invariant=scenario.invariant,
        observe=scenario.observe,
    )
"""


def replay_test(name: str, schedule: str) -> str:
    """Return a test file that fails as long as the schedule of the race of this name, as in `find_race`, ends wrong."""
    prepare = "    scenario.prepare()\n" if find_race(name).scenario.prepare else ""
    return _REPLAY.format(name=json.dumps(name, ensure_ascii=False), schedule=schedule, prepare=prepare)
