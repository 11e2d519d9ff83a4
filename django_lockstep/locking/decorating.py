"""What a decorator of the library may decorate, and context managers that are decorators, too."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import _GeneratorContextManager
from typing import Any, ParamSpec, TypeVar

from asgiref.sync import iscoroutinefunction

P = ParamSpec("P")
F = TypeVar("F", bound=Callable[..., Any])


def refuse_generator(function: Callable[..., Any], *, decorator: str) -> None:
    """Raise ``TypeError`` for a generator function: its body runs when the caller iterates, after the decorator."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(
            f"@{decorator} cannot decorate the generator function {function.__qualname__}(), whose body runs after the "
            "call has returned: decorate a function that does the work, and call it from the generator"
        )


class Block(_GeneratorContextManager[None]):
    """A context manager that is entered anew for each call of a function that it decorates."""

    def __call__(self, function: F) -> F:
        """Decorate a function. Raises ``TypeError`` for one whose body would run after the block has ended."""
        name = self.func.__name__
        refuse_generator(function, decorator=name)
        if iscoroutinefunction(function):
            raise TypeError(
                f"@{name} cannot decorate the coroutine function {function.__qualname__}(), whose body runs when "
                "it is awaited: open the block inside"
            )
        return super().__call__(function)


def block(function: Callable[P, Iterator[None]]) -> Callable[P, Block]:
    """As `contextlib.contextmanager`, for what is also used as a decorator; see `Block`."""

    @functools.wraps(function)
    def build(*args: P.args, **kwargs: P.kwargs) -> Block:
        return Block(function, args, kwargs)  # type: ignore[arg-type]  # as contextmanager() does

    return build
