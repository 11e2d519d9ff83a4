"""The scenario of a race, as the explorer, the simulator, tests and pages use it."""

from __future__ import annotations

import functools
import inspect
import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from types import MappingProxyType
from typing import Any

from asgiref.sync import iscoroutinefunction

from django_lockstep.lab.wording import gettext as _

ActorFunction = Callable[..., Any]
"""Takes what the set-up returned, nothing without a set-up; what it returns or raises is the actor's result."""
Invariant = Callable[..., bool | None]
"""Takes what the set-up returned, or that, the results and the errors; nothing without a set-up.

It is broken if this raises ``AssertionError`` or returns a false value other than None.
"""
_NOTHING: Mapping[str, Any] = MappingProxyType({})
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


@dataclass(frozen=True, slots=True, init=False)
class Scenario:
    """A race: its initial state, its actors, and what must hold at the end.

    The explorer gives each actor a thread, the simulator a process; for the latter everything here must be picklable
    (functions of a module, instances of module-level classes). Actors given as a sequence are named A, B, C and so
    on. Raises ``ValueError`` without an actor, and for more than 26.
    """

    set_up: Callable[[], Any]
    """Creates the rows of one run, committed; its result is passed to the actors, ``invariant`` and ``observe``.

    Without one these are called without arguments, and every run begins with the rows that are there already.
    """
    actors: Mapping[str, ActorFunction]
    """What runs at the same time, by name."""
    invariant: Invariant | None
    """Whether the final state is right: False and AssertionError mean no, anything true and None yes.

    Called with what ``set_up`` returned and, if it takes three arguments, the actors' results and errors by name.
    """
    observe: Callable[[Any], Any] | None
    """Returns the final state, as something short to print and to compare."""
    prepare: Callable[[], None] | None
    """Called once before anything runs, to make what the project's migrations do not: what it makes is left there."""

    def __init__(
        self,
        *,
        set_up: Callable[[], Any] | None = None,
        actors: Mapping[str, ActorFunction] | Sequence[ActorFunction],
        invariant: Invariant | None = None,
        observe: Callable[..., Any] | None = None,
        prepare: Callable[[], None] | None = None,
    ) -> None:
        if not 1 <= len(actors) <= len(ascii_uppercase):
            raise ValueError(f"A scenario must have 1 to {len(ascii_uppercase)} actors, not {len(actors)}")
        named = actors if isinstance(actors, Mapping) else dict(zip(ascii_uppercase, actors, strict=False))
        if set_up is None:
            set_up = _set_up_nothing
            # One wrapper for each function: actors that are copies of one function stay that.
            wrapped = {function: _without_fixture(function) for function in {*named.values(), invariant, observe}}
            named = {name: wrapped[function] for name, function in named.items()}
            invariant, observe = wrapped[invariant], wrapped[observe]
        values = {
            "set_up": set_up,
            "actors": named,
            "invariant": invariant,
            "observe": observe,
            "prepare": prepare,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)  # frozen

    @property
    def judges_results(self) -> bool:
        """Whether the invariant takes what actors returned and raised."""
        return self.invariant is not None and _takes_three(self.invariant)

    def objection(
        self, fixture: Any, results: Mapping[str, Any] = _NOTHING, errors: Mapping[str, BaseException] = _NOTHING
    ) -> str:
        """Return how the invariant is broken; empty if it holds, and without an invariant."""
        if self.invariant is None:
            return ""
        arguments = (fixture, results, errors) if self.judges_results else (fixture,)
        try:
            held = self.invariant(*arguments)
        except AssertionError as error:
            # Without a message, its line of code. Addresses, which pytest's messages name, differ between runs; what
            # two runs say of one schedule must not.
            frame = traceback.extract_tb(error.__traceback__)[-1]
            said = str(error)
            message = (_ADDRESS.sub("", said) if _ADDRESS.search(said) else said) or frame.line or type(error).__name__
            return _("The invariant does not hold: {message}", message=message)
        return "" if held is None or held else _("The invariant does not hold")


def _set_up_nothing() -> None:
    """Leave the rows as they are when the race begins: before every schedule they are put back to that."""


def _without_fixture(function: Any) -> Any:
    """Return the function with one parameter more, which it is not given."""
    if function is None:
        return None
    if iscoroutinefunction(function):

        @functools.wraps(function)
        async def acall(fixture: object) -> Any:
            return await function()

        return acall

    @functools.wraps(function)
    def call(fixture: object) -> Any:
        return function()

    return call


def _takes_three(invariant: Invariant) -> bool:
    try:
        parameters = inspect.signature(invariant).parameters.values()
    except ValueError:  # a function written in C, such as bool
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    # Parameters with defaults are often used to bind the variable of a loop.
    return sum(parameter.kind in positional and parameter.default is parameter.empty for parameter in parameters) == 3
