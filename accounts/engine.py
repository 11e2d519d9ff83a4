"""Which code changes a balance: the method as it is written, or a counterpart that an app has registered for it.

The methods define what a change means, and are what runs by default. With ``accounts.contrib.compiled`` installed, the
setting ``ACCOUNTS_ENGINE = "compiled"`` lets its counterparts run instead: the same change in fewer round trips. A
counterpart returns ``NotImplemented`` for what it leaves to the method.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, ParamSpec, TypeVar

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.dispatch import receiver

P = ParamSpec("P")
R = TypeVar("R")

EngineName = Literal["plain", "compiled"]
ENGINES: tuple[EngineName, ...] = ("plain", "compiled")
"""The values of ``ACCOUNTS_ENGINE``."""

_counterparts: dict[Callable[..., Any], Callable[..., Any]] = {}
# A context variable, because requests of one process run in threads and coroutines at the same time.
_chosen: ContextVar[EngineName | None] = ContextVar("accounts_engine", default=None)


def compilable(method: Callable[P, R]) -> Callable[P, R]:
    """Let the method's counterpart run instead, if one is registered and the current engine is the compiled one."""
    plain = inspect.unwrap(method)

    @functools.wraps(method)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        if (_chosen.get() or engine_name()) == "compiled" and plain in _counterparts:
            # NotImplemented instead of None: a method may return None.
            result: R = _counterparts[plain](*args, **kwargs)
            if result is not NotImplemented:
                return result
        return method(*args, **kwargs)

    return run


def register_counterpart(original: Callable[..., Any], counterpart: Callable[..., Any]) -> None:
    """Register the counterpart of a method decorated by `compilable`, whose arguments it takes."""
    _counterparts[inspect.unwrap(original)] = counterpart


@functools.cache  # every change of a balance asks, and a setting that is not there takes Django long to look for
def engine_name() -> EngineName:
    """Return ``ACCOUNTS_ENGINE``: ``"plain"``, the default, or ``"compiled"``. Raises ``ImproperlyConfigured``."""
    return _require_engine(getattr(settings, "ACCOUNTS_ENGINE", "plain"))


@receiver(setting_changed)
def _forget_engine_name(**kwargs: object) -> None:
    engine_name.cache_clear()


@contextmanager
def use_engine(name: EngineName | None) -> Iterator[None]:
    """Use this engine in the block, for the current thread or coroutine; None keeps the current one.

    Outside of any block the setting ``ACCOUNTS_ENGINE`` applies. Raises ``ImproperlyConfigured``.
    """
    token = _chosen.set(_chosen.get() if name is None else _require_engine(name))
    try:
        yield
    finally:
        _chosen.reset(token)


def _require_engine(name: EngineName) -> EngineName:
    if name not in ENGINES:
        raise ImproperlyConfigured(f"ACCOUNTS_ENGINE must be {' or '.join(map(repr, ENGINES))}, not {name!r}")
    if name == "compiled" and not _counterparts:
        raise ImproperlyConfigured("The engine 'compiled' needs 'accounts.contrib.compiled' in INSTALLED_APPS.")
    return name
