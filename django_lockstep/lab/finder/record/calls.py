"""Interception of calls that a test makes: of the project's functions, with the arguments that they are called with."""

from __future__ import annotations

import copy
import inspect
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

from django_lockstep.lab.finder.record.fingerprints import Fingerprints
from django_lockstep.lab.finder.record.reader import StatementReader, instances

__all__ = ["Call", "intercept_calls"]

_ASYNCHRONOUS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


@dataclass(frozen=True, slots=True)
class Call:
    """A call that is about to happen, which others can make too."""

    function: FunctionType
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    loaded: tuple[list[str], ...]
    """Of each instance of a model among the arguments, the fields that its caller has loaded and not set."""

    @property
    def title(self) -> str:
        """The function, such as ``shop.services.book()``."""
        return f"{self.function.__module__}.{self.function.__qualname__}()"

    def __call__(self, fixture: object) -> Any:
        """Make it as another process would: with copies of the arguments, and rows loaded now."""
        args, kwargs = tuple(map(_copied, self.args)), {name: _copied(value) for name, value in self.kwargs.items()}
        copies, originals = instances([*args, *kwargs.values()]), instances([*self.args, *self.kwargs.values()])
        for instance, original, fields in zip(copies, originals, self.loaded, strict=True):
            # What cannot be copied is the test's own.
            if fields and instance is not original:
                instance.refresh_from_db(fields=fields)
        return self.function(*args, **kwargs)


def _copied(value: Any) -> Any:
    # What cannot be copied, such as a client of another service, is shared.
    with suppress(Exception):
        return copy.deepcopy(value)
    return value


@contextmanager
def intercept_calls(
    names: Collection[str], on_call: Callable[[str, Call], AbstractContextManager[None]]
) -> Iterator[None]:
    """Have this thread call these functions, named ``module.function``, in the context that ``on_call`` returns.

    The outermost decorator counts, so that a transaction that one begins is not open yet. The function object stays,
    since tests have imported it; only its code is another one meanwhile. (A profiling hook would see the calls as well,
    but makes CPython 3.11 hang.) Functions that cannot be found by their names, and asynchronous ones, are left alone.
    """
    # One for all calls: it reads a database's catalog once.
    reader = StatementReader(Fingerprints(None), lambda tables: None)
    with ExitStack() as stack:
        for name in names:
            if (function := _find(name)) is not None:
                stack.enter_context(_intercepted(function, lambda call, name=name: on_call(name, call), reader))  # type: ignore[misc]
        yield


def _find(name: str) -> FunctionType | None:
    """Return the function, with its decorators; None if there is no such function."""
    parts = name.split(".")
    # The longest module first: what is left of the name are a class and its function.
    for length in range(len(parts) - 1, 0, -1):
        owner: Any = sys.modules.get(".".join(parts[:length]))
        if owner is not None:
            for part in parts[length:]:
                # Not getattr(): it would bind the function, and run what a descriptor does.
                owner = inspect.getattr_static(owner, part, None)
            function = getattr(owner, "__func__", owner)  # of a class or static method
            synchronous = isinstance(function, FunctionType) and not function.__code__.co_flags & _ASYNCHRONOUS
            return function if synchronous else None
    return None


@contextmanager
def _intercepted(
    function: FunctionType, on_call: Callable[[Call], AbstractContextManager[None]], reader: StatementReader
) -> Iterator[None]:
    # A second function with this code: the first one's is about to be replaced.
    original = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    original.__kwdefaults__ = function.__kwdefaults__
    # The name that its decorators have given it, and what they wrap.
    original.__module__, original.__qualname__ = function.__module__, function.__qualname__
    original.__dict__.update(function.__dict__)
    thread, inside = threading.get_ident(), False

    def called(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        nonlocal inside
        # Neither what others call meanwhile, nor what the function itself calls.
        if inside or threading.get_ident() != thread:
            return original(*args, **kwargs)
        inside = True
        try:
            # Now, while the rows of the arguments are as the caller has loaded them.
            loaded = tuple(map(reader.loaded_fields, instances([*args, *kwargs.values()])))
            with on_call(Call(original, args, kwargs, loaded)):
                return original(*args, **kwargs)
        finally:
            inside = False

    before = function.__code__
    function.__code__ = _passing_on(called, like=before)
    try:
        yield
    finally:
        function.__code__ = before


def _passing_on(called: Callable[..., Any], *, like: CodeType) -> CodeType:
    """Return code that passes all arguments on, with the free variables of the code that it replaces."""
    # Compiled with as many of them, not given them by replace(): the compiler writes COPY_FREE_VARS for them, and
    # without that instruction CPython 3.11 and 3.12 crash when f_locals are read, as pytest does of a failure.
    cells = ", ".join(f"cell_{number}" for number in range(len(like.co_freevars)))
    scope: dict[str, Any] = {}
    exec(_TEMPLATE.format(cells=cells), scope)  # noqa: S102 - a constant, and names that are made here
    code: CodeType = scope["enclosing"](*like.co_freevars).__code__
    constants = tuple(called if constant == "called" else constant for constant in code.co_consts)
    # With the old names and lines, by which tracebacks and recorded sites are read.
    return code.replace(
        co_consts=constants,
        co_freevars=like.co_freevars,
        co_name=like.co_name,
        co_qualname=like.co_qualname,
        co_filename=like.co_filename,
        co_firstlineno=like.co_firstlineno,
    )


# The cells are named behind the end, because one that is still empty cannot be read.
_TEMPLATE = """
def enclosing({cells}):
    def passing_on(*args, **kwargs):
        called = "called"
        return called(args, kwargs)
        ({cells})
    return passing_on
"""
