"""Interception of calls, with the arguments that they are called with, and of requests."""

import io
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from operator import attrgetter
from typing import Any, NoReturn
from unittest.mock import MagicMock

import pytest
from django.core.management.base import BaseCommand

from django_lockstep.lab.finder.record.interception import (
    Call,
    buffer_body,
    intercept_calls,
)
from tests.testapps.shop.models import PlainSeat


def plain(a: Any, b: Any = 2) -> tuple[Any, Any]:
    return a, b


def countdown(number: int) -> int:
    return countdown(number - 1) if number else 0


def append_to(items: list[int]) -> list[int]:
    items.append(len(items))
    return items


def fail() -> None:
    raise LookupError


def numbers() -> Iterator[int]:
    yield 1


async def later() -> int:
    return 1


async def numbers_later() -> AsyncIterator[int]:
    yield 1


class Counter:
    opened = 0

    def serve(self, name: str) -> str:
        return name


class LoudCounter(Counter):
    def serve(self, name: str) -> str:
        raise LookupError(super().serve(name))


def _with_cells(first: int, second: int) -> Callable[..., Any]:
    def fail_with_cells(*args: int) -> None:
        raise LookupError(first, second, lambda: unset)

    if not first:
        unset = second
    return fail_with_cells


fail_with_cells = _with_cells(1, 2)


def full_name(function: Any) -> str:
    return f"{function.__module__}.{function.__qualname__}"


def noted_in(calls: list[Any]) -> Callable[..., AbstractContextManager[None]]:
    def on_call(*call: Any) -> AbstractContextManager[None]:
        calls.append(call)
        return nullcontext()

    return on_call


@contextmanager
def seen(*functions: Any) -> Iterator[list[tuple[str, Call]]]:
    """Collect the calls of these functions."""
    calls: list[tuple[str, Call]] = []
    with intercept_calls({full_name(function) for function in functions}, noted_in(calls)):
        yield calls


def test_only_the_outermost_of_recursive_calls() -> None:
    with seen(countdown) as calls:
        countdown(3)
        countdown(1)

    assert [call.args for _, call in calls] == [(3,), (1,)]


def test_arguments_are_copied_and_what_cannot_be_is_shared() -> None:
    items: list[int] = []
    lock = threading.Lock()
    with seen(append_to, plain) as calls:
        append_to(items)
        plain(lock)

    (_, appended), (_, shared) = calls
    items.clear()
    assert (appended(None), appended(None), items) == ([0], [0], [])
    assert shared(None)[0] is lock


class Command(BaseCommand):
    def handle(self, *args: Any, **options: Any) -> str:
        self.stdout.write("done")
        return "done"


def test_a_command_prints_nowhere_because_its_tests_output_may_be_closed() -> None:
    output = io.StringIO()
    with seen(Command.handle) as calls:
        Command(stdout=output).handle()
    output.close()

    ((_, call),) = calls
    assert call(None) == "done"


@pytest.mark.django_db
def test_rows_of_arguments_are_loaded_when_the_call_is_made_and_what_was_set_is_kept() -> None:
    seat = PlainSeat.objects.create(price=10, guest="Ada", wishes=["aisle"])
    seat.row = "C"
    with seen(plain) as calls:
        plain([seat])
    PlainSeat.objects.update(price=20, guest="Bob", row="B", wishes=[])

    ((_, call),) = calls
    ((loaded,), *_) = call(None)
    assert (loaded.price, loaded.guest, loaded.row, loaded.wishes) == (20, "Bob", "C", [])
    assert (seat.price, seat.guest) == (10, "Ada")


def test_generators_and_coroutines_are_left_alone() -> None:
    with seen(numbers, later, numbers_later) as calls:
        assert list(numbers()) == [1]
        coroutine: Any = later()
        generator: Any = numbers_later()
        with pytest.raises(StopIteration):
            coroutine.send(None)
        with pytest.raises(StopIteration):
            generator.__anext__().send(None)

    assert calls == []


@pytest.mark.parametrize(
    ("name", "args", "cells"),
    [
        ("fail", (), {}),
        ("LoudCounter.serve", (LoudCounter(), "Ada"), {"__class__": LoudCounter}),
        ("fail_with_cells", (3,), {"first": 1, "second": 2}),
    ],
)
def test_variables_of_each_frame_of_a_failure_can_be_read(
    name: str, args: tuple[Any, ...], cells: dict[str, Any]
) -> None:
    function = attrgetter(name)(sys.modules[__name__])
    with intercept_calls({f"{__name__}.{name}"}, noted_in([])), pytest.raises(LookupError) as failure:
        function(*args)

    passing_on, *_, original = [entry.frame.f_locals for entry in failure.traceback if entry.name == function.__name__]
    assert passing_on == {"args": args, "kwargs": {}, "called": passing_on["called"], **cells}
    assert cells.items() <= dict(original).items()


def test_calls_of_other_threads_are_not_the_tests() -> None:
    with seen(plain) as calls, ThreadPoolExecutor(1) as others:
        assert others.submit(plain, 1).result() == (1, 2)

    assert calls == []


def test_names_without_a_function_are_left_alone() -> None:
    with intercept_calls(
        {"no.such.module", f"{__name__}.missing", f"{__name__}.Counter", f"{__name__}.Counter.opened"}, MagicMock()
    ):
        assert plain(1) == (1, 2)


def test_an_exception_of_the_watcher_ends_the_call() -> None:
    calls = []

    def on_call(name: str, call: Call) -> NoReturn:
        calls.append(call)
        raise LookupError

    with intercept_calls({full_name(plain)}, on_call):
        for number in range(2):
            with pytest.raises(LookupError):
                plain(number)

    assert [call.args for call in calls] == [(0,), (1,)]


def test_a_body_without_length_is_left_alone() -> None:
    stream = object()
    environ = {"CONTENT_LENGTH": "", "wsgi.input": stream}

    assert buffer_body(environ) == b""
    assert environ["wsgi.input"] is stream
