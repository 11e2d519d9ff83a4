"""Races of two, in a few lines each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django_lockstep.lab.races import Race, repeat_roles
from django_lockstep.lab.scenario import ActorFunction, Scenario

__all__ = ["pair"]


def pair(
    name: str,
    text: str,
    *,
    actor: ActorFunction | Sequence[ActorFunction],
    set_up: Callable[[], Any],
    invariant: ActorFunction | None = None,
    invariant_of: Callable[[int], ActorFunction] | None = None,
    observe: ActorFunction | None = None,
    **expected: Any,
) -> Race:
    """Return the race of one callable against itself, or of several in turn, with what is expected of it.

    ``invariant_of`` makes the invariant where it depends on how many actors there are.
    """
    roles = [actor] * 2 if callable(actor) else list(actor)
    scenario = Scenario(set_up=set_up, actors=roles, invariant=invariant, observe=observe)
    made = repeat_roles(scenario, invariant_of=invariant_of)
    return Race(name=name, text=text, scenario=made(len(roles)), **{"many": made, **expected})
