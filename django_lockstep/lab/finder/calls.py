"""Interception of calls that a test makes: of the project's functions, with the arguments that they are called with."""

from __future__ import annotations

import copy
import gc
import inspect
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import CellType, CodeType, FrameType, FunctionType
from typing import Any

__all__ = ["Call", "full_name", "intercept_calls"]


@dataclass(frozen=True, slots=True)
class Call:
    """A call that is about to happen, which others can make too."""

    function: FunctionType
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def __call__(self, fixture: object) -> Any:
        """Make it, with copies of the arguments: two processes would each have loaded objects of their own."""
        return self.function(*map(_copied, self.args), **{name: _copied(value) for name, value in self.kwargs.items()})


def _copied(value: Any) -> Any:
    # What cannot be copied, such as a client of another service, is shared.
    with suppress(Exception):
        return copy.deepcopy(value)
    return value


@contextmanager
def intercept_calls(names: Collection[str], on_call: Callable[[str, Call], None]) -> Iterator[None]:
    """Have ``on_call`` called before this thread calls one of these functions, named ``module.function``.

    A decorated function counts where its outermost decorator is called, so that a transaction that one begins is not
    open yet. The profiling hook of the thread is used: it sees every call and changes none. An exception of ``on_call``
    is raised where the function was called, and no further call is seen.
    """
    if not names:
        yield
        return
    watch = _Watch(frozenset(names), on_call)
    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(before)


class _Watch:
    """A profiling function."""

    def __init__(self, names: frozenset[str], on_call: Callable[[str, Call], None]) -> None:
        self._names = names
        self._on_call = on_call
        self._known: dict[CodeType, str] = {}
        self._running: dict[str, FrameType] = {}

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "return":
            for name in [name for name, running in self._running.items() if running is frame]:
                del self._running[name]
        elif event == "call" and (name := self._name_of(frame)) and not self._is_running(name, frame):
            function = _function_of(frame)
            if function is not None:
                self._running[name] = frame
                sys.setprofile(None)
                try:
                    self._on_call(name, _call_of(function, frame))
                finally:
                    sys.setprofile(self)

    def _name_of(self, frame: FrameType) -> str:
        """Return the name of the wanted function that the frame calls, perhaps as its decorator; empty for others."""
        code = frame.f_code
        if code not in self._known:
            name = f"{frame.f_globals.get('__name__')}.{code.co_qualname}"
            self._known[code] = name if name in self._names else ""
        if self._known[code] or not code.co_freevars:
            return self._known[code]
        wrapped = (frame.f_locals.get(name) for name in code.co_freevars)
        found = (full_name(inspect.unwrap(value)) for value in wrapped if isinstance(value, FunctionType))
        return next((name for name in found if name in self._names), "")

    def _is_running(self, name: str, frame: FrameType | None) -> bool:
        """Whether the frame is inside of a call of this function that was already passed on."""
        while frame is not None:
            if frame is self._running.get(name):
                return True
            frame = frame.f_back
        return False


def full_name(function: Any) -> str:
    """Return the module's and the function's name, as recordings name calls."""
    return f"{function.__module__}.{function.__qualname__}"


def _function_of(frame: FrameType) -> FunctionType | None:
    """Return the function that the frame runs; functions of one definition differ in what they close over."""
    code = frame.f_code
    if code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        return None
    given = frame.f_locals
    for function in gc.get_referrers(code):
        if isinstance(function, FunctionType) and function.__code__ is code:
            cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
            if all(given.get(name) is _content(cell) for name, cell in cells):
                return function
    return None


def _content(cell: Any) -> Any:
    return cell.cell_contents if cell != CellType() else None


def _call_of(function: FunctionType, frame: FrameType) -> Call:
    found = inspect.getargvalues(frame)
    keyword_only = frame.f_code.co_varnames[frame.f_code.co_argcount :][: frame.f_code.co_kwonlyargcount]
    args = [found.locals[name] for name in found.args if name not in keyword_only]
    kwargs = {name: found.locals[name] for name in keyword_only}
    return Call(
        function,
        (*args, *(found.locals[found.varargs] if found.varargs else ())),
        {**kwargs, **(found.locals[found.keywords] if found.keywords else {})},
    )
