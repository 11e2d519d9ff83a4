"""The two engines that change balances: plain and compiled, with the same results.

The plain engine calls the methods as they are written; they define what a change means. The compiled engine sends
statements that were compiled once, in fewer round trips. It falls back to the method where it cannot do the same (see
`accounts.engine.obstacles`) and where its statement wrote nothing, so that the method raises the right error.

Engines are chosen in one place: the decorator `compiled_by`.
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
from django.core.signals import setting_changed
from django.dispatch import receiver
from django.utils.module_loading import import_string

__all__ = [
    "ENGINES",
    "Engine",
    "EngineMethod",
    "EngineName",
    "compiled_by",
    "engine_name",
    "has_counterpart",
    "use_engine",
]

P = ParamSpec("P")
R = TypeVar("R")

EngineName = Literal["compiled", "plain"]


class EngineMethod(Generic[P, R]):
    """A method with its compiled counterpart, which has the same arguments and may return ``NotImplemented``."""

    def __init__(self, plain: Callable[P, R], path: str) -> None:
        self.plain = plain
        self.path = path

    @functools.cached_property
    def compiled(self) -> Callable[P, R]:
        """The counterpart, imported on first use, because its module imports the models that have the method."""
        counterpart: Callable[P, R] = import_string(self.path)
        return counterpart


class Engine(Protocol):
    """Runs methods that have a compiled counterpart."""

    def run(self, method: EngineMethod[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Do what the method does, with the same result and the same errors."""
        ...


class PlainEngine:
    """Calls the methods as they are written."""

    def run(self, method: EngineMethod[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        return method.plain(*args, **kwargs)


class CompiledEngine:
    """Calls the compiled counterpart, and the method where that returns ``NotImplemented``."""

    def run(self, method: EngineMethod[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        # NotImplemented instead of None: a method may return None.
        done = method.compiled(*args, **kwargs)
        return method.plain(*args, **kwargs) if done is NotImplemented else done


ENGINES: Mapping[EngineName, Engine] = MappingProxyType({"compiled": CompiledEngine(), "plain": PlainEngine()})
"""The engines, by the values of ``ACCOUNTS_ENGINE``."""

# A context variable, because requests of one process run in threads and coroutines at the same time.
_chosen: ContextVar[EngineName | None] = ContextVar("accounts_engine", default=None)


@functools.cache  # every change of a balance asks, and a setting that is not there takes Django long to look for
def engine_name() -> EngineName:
    """Return ``ACCOUNTS_ENGINE``: ``"compiled"`` (the default), or ``"plain"`` to run every method as it is written.

    Raises ``ImproperlyConfigured`` for any other value.
    """
    name: EngineName = getattr(settings, "ACCOUNTS_ENGINE", "compiled")
    if name not in ENGINES:
        raise ImproperlyConfigured(f"ACCOUNTS_ENGINE must be {' or '.join(map(repr, ENGINES))}, not {name!r}")
    return name


@receiver(setting_changed)
def _forget_engine_name(**kwargs: object) -> None:
    engine_name.cache_clear()


def compiled_by(path: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let the current engine run this method; ``path`` is the dotted path of its compiled counterpart."""

    def decorate(plain: Callable[P, R]) -> Callable[P, R]:
        method = EngineMethod(plain, path)

        @functools.wraps(plain)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            return ENGINES[_chosen.get() or engine_name()].run(method, *args, **kwargs)

        vars(run)["engine_method"] = method
        return run

    return decorate


def has_counterpart(method: Callable[..., Any]) -> bool:
    """Whether the method is decorated by `compiled_by`."""
    return hasattr(method, "engine_method")


@contextmanager
def use_engine(name: EngineName | None) -> Iterator[None]:
    """Use this engine in the block, for the current thread or coroutine; None keeps the current one.

    Outside of any block the setting ``ACCOUNTS_ENGINE`` applies.
    """
    token = _chosen.set(name or _chosen.get())
    try:
        yield
    finally:
        _chosen.reset(token)
