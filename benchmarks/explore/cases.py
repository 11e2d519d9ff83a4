"""The explored races: the ready-made ones, and the same changes by three actors."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from types import MappingProxyType

from accounts.races.by_strategy import Story, story_race
from accounts.races.ready_made import RACES
from accounts.strategies import STRATEGIES
from django_lockstep.lab.races import Race

TWO: Mapping[str, Race] = RACES
"""Every ready-made race, by its name."""

_THREE_DEPOSITS = Story(
    name="three-deposits",
    text="Three workers deposit 10, 20 and 30 at the same time.",
    balance=100,
    changes=(("deposit", Decimal(10)), ("deposit", Decimal(20)), ("deposit", Decimal(30))),
    passing=3,
)
_SIMPLE = ("naive", "pessimistic", "optimistic", "conditional_update", "serializable")
"""One strategy each for read-modify-write, row lock, version, F() and SERIALIZABLE."""

THREE: Mapping[str, Race] = MappingProxyType(
    {race.name: race for race in (story_race(_THREE_DEPOSITS, STRATEGIES[name]) for name in _SIMPLE)}
)
"""Three actors, by name."""
