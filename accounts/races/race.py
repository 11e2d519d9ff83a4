"""Races of two, in a few lines each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from django_lockstep.lab.races import Race, repeat_roles
from django_lockstep.lab.scenario import ActorFunction, Scenario

__all__ = ["RaceList", "pair"]

A = TypeVar("A", bound=Callable[..., Any])


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
    build = repeat_roles(scenario, invariant_of=invariant_of)
    return Race(name=name, text=text, scenario=build(len(roles)), **{"many": build, **expected})


class RaceList(list[Race]):
    """The races of a module, in the order in which it defines them."""

    def of(self, name: str, **parts: Any) -> Callable[[A], A]:
        """Add the race of the decorated actor against itself, whose docstring is the text; ``parts`` as of `pair`."""

        def add(actor: A) -> A:
            self.append(pair(name, (actor.__doc__ or "").partition("\n")[0], actor=actor, **parts))
            return actor

        return add
