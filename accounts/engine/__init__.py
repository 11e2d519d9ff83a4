"""How a change of a balance reaches the database: by one of two engines, which do the same.

The plain engine calls the methods as they are written: they are the meaning. The compiled engine does the same with
statements that were compiled once, in fewer round trips, and leaves to the method what it cannot do (see
`accounts.engine.obstacles`) and what ended without a result, so that the method says why.

`compiled_by`, above a method or function, is the only seam: nothing else asks which engine runs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, Generic, Literal, ParamSpec, Protocol, TypeVar

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

__all__ = [
    "ENGINES",
    "Engine",
    "EngineName",
    "Operation",
    "compiled_by",
    "engine_name",
    "has_counterpart",
    "use_engine",
]

P = ParamSpec("P")
R = TypeVar("R")

EngineName = Literal["compiled", "plain"]


class Operation(Generic[P, R]):
    """A method with its compiled counterpart: the same arguments, and ``NotImplemented`` for "left to the method"."""

    def __init__(self, plain: Callable[P, R], path: str) -> None:
        self.plain = plain
        self.path = path

    @functools.cached_property
    def compiled(self) -> Callable[P, R]:
        """The counterpart, imported when it is first needed: it stands above the models, the method in them."""
        counterpart: Callable[P, R] = import_string(self.path)
        return counterpart


class Engine(Protocol):
    """Runs operations."""

    def run(self, operation: Operation[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Do what the operation's method does; errors are the method's."""
        ...


class PlainEngine:
    """Calls the methods as they are written."""

    def run(self, operation: Operation[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the method."""
        return operation.plain(*args, **kwargs)


class CompiledEngine:
    """Calls the compiled counterpart, and the method for what that leaves to it."""

    def run(self, operation: Operation[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the counterpart first."""
        done = operation.compiled(*args, **kwargs)
        return operation.plain(*args, **kwargs) if done is NotImplemented else done


ENGINES: Mapping[EngineName, Engine] = MappingProxyType({"compiled": CompiledEngine(), "plain": PlainEngine()})
"""Both by name."""

_chosen: ContextVar[EngineName | None] = ContextVar("accounts_engine", default=None)


def engine_name() -> EngineName:
    """``ACCOUNTS_ENGINE``: ``"compiled"`` (the default), or ``"plain"`` to run every method as it is written.

    Raises ``ImproperlyConfigured`` for any other value.
    """
    name: EngineName = getattr(settings, "ACCOUNTS_ENGINE", "compiled")
    if name not in ENGINES:
        raise ImproperlyConfigured(f"ACCOUNTS_ENGINE must be {' or '.join(map(repr, ENGINES))}, not {name!r}")
    return name


def compiled_by(path: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let the engine in force run this method; ``path`` is the dotted path of its compiled counterpart."""

    def decorate(plain: Callable[P, R]) -> Callable[P, R]:
        operation = Operation(plain, path)

        @functools.wraps(plain)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            return ENGINES[_chosen.get() or engine_name()].run(operation, *args, **kwargs)

        vars(run)["operation"] = operation
        return run

    return decorate


def has_counterpart(method: Callable[..., Any]) -> bool:
    """Whether the method stands under `compiled_by`."""
    return hasattr(method, "operation")


@contextmanager
def use_engine(name: EngineName | None) -> Iterator[None]:
    """Run what this thread, or this coroutine, changes in the block by this engine; None leaves the choice as it is.

    Outside of any block the setting ``ACCOUNTS_ENGINE`` decides.
    """
    token = _chosen.set(name or _chosen.get())
    try:
        yield
    finally:
        _chosen.reset(token)
