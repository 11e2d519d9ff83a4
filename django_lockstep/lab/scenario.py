"""What is raced: the one vocabulary of the explorer, the simulator, the tests and the pages."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from types import MappingProxyType
from typing import Any

__all__ = ["Scenario"]


Step = Callable[[Any], Any]
Invariant = Callable[..., bool | None]
_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True, init=False)
class Scenario:
    """A race: where it starts, who runs, and what has to hold at the end.

    The explorer gives each actor a thread, the simulator a process; for the latter everything here must be picklable
    (functions of a module, instances of module-level classes). Actors given as a sequence are called A, B, C and so
    on. Raises ``ValueError`` for no actor, and for more than there are letters.
    """

    set_up: Callable[[], Any]
    """Makes the rows of one run, committed; what it returns goes to the actors, ``invariant`` and ``observe``."""
    actors: Mapping[str, Step]
    """Who runs at the same time, by name."""
    invariant: Invariant | None
    """Whether the end is one that the code promises: False and AssertionError say no, anything true and None yes.

    Called with what ``set_up`` returned, or, where it takes three arguments, also with the actors' results and errors
    by name.
    """
    observe: Callable[[Any], Any] | None
    """The end, as something short to print and to compare."""

    def __init__(
        self,
        *,
        set_up: Callable[[], Any],
        actors: Mapping[str, Step] | Sequence[Step],
        invariant: Invariant | None = None,
        observe: Callable[[Any], Any] | None = None,
    ) -> None:
        if not 1 <= len(actors) <= len(ascii_uppercase):
            raise ValueError(f"A scenario has 1 to {len(ascii_uppercase)} actors, not {len(actors)}")
        named = actors if isinstance(actors, Mapping) else dict(zip(ascii_uppercase, actors, strict=False))
        values = {"set_up": set_up, "actors": named, "invariant": invariant, "observe": observe}
        for name, value in values.items():
            object.__setattr__(self, name, value)  # frozen

    def objection(
        self, fixture: Any, results: Mapping[str, Any] = _NOTHING, errors: Mapping[str, BaseException] = _NOTHING
    ) -> str:
        """Return what the invariant has against the end, or nothing; nothing without an invariant."""
        if self.invariant is None:
            return ""
        given = (fixture, results, errors) if _takes_three(self.invariant) else (fixture,)
        try:
            held = self.invariant(*given)
        except AssertionError as error:
            return f"The invariant does not hold: {_message(error)}"
        return "" if held is None or held else "The invariant does not hold"


def _takes_three(invariant: Invariant) -> bool:
    try:
        parameters = inspect.signature(invariant).parameters.values()
    except ValueError:  # written in C, such as bool
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    # Parameters with defaults often carry what a loop has bound.
    return sum(each.kind in positional and each.default is each.empty for each in parameters) == 3


def _message(error: AssertionError) -> str:
    """Return what the assertion says; of a bare one, the line on which it stands."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return str(error) or frame.line or type(error).__name__
