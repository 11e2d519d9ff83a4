"""Interception of calls, with the arguments that they are called with, and of requests."""

import inspect
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import wraps
from io import BytesIO
from operator import attrgetter
from typing import Any, NoReturn
from unittest.mock import MagicMock

import pytest
from django.core.handlers.wsgi import WSGIHandler
from django.db import transaction
from django.http import HttpResponse
from django.test import Client, RequestFactory, override_settings
from django.urls import path

from django_lockstep.lab.finder.record.interception import (
    Call,
    CallNext,
    buffer_body,
    current_request,
    intercept,
    intercept_calls,
)
from tests.testapps.shop.models import PlainSeat


def plain(a: Any, b: Any = 2) -> tuple[Any, Any]:
    return a, b


def flexible(a: int, /, *rest: int, b: int, c: int = 3, **others: int) -> tuple[Any, ...]:
    return a, rest, b, c, others


def countdown(number: int) -> int:
    return countdown(number - 1) if number else 0


def append_to(items: list[int]) -> list[int]:
    items.append(len(items))
    return items


def rebound(name: str) -> str:
    def read() -> str:
        return name

    name = name.upper()
    return read()


def fail() -> None:
    raise LookupError


@transaction.atomic(using="default")
def in_block(number: int) -> bool:
    return bool(transaction.get_connection().in_atomic_block)


def _twice(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs), function(*args, **kwargs)

    return call


@_twice
def decorated(number: int) -> int:
    return number


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

    @classmethod
    def open(cls, number: int) -> int:
        cls.opened += 1
        return number

    @staticmethod
    def close(number: int) -> int:
        return number


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


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "result"),
    [
        (plain, (1,), {}, (1, 2)),
        (plain, (1,), {"b": 5}, (1, 5)),
        (flexible, (1, 2, 3), {"b": 4, "d": 5}, (1, (2, 3), 4, 3, {"d": 5})),
        (decorated, (1,), {}, (1, 1)),
        (Counter.close, (1,), {}, 1),
        (rebound, ("a",), {}, "A"),
    ],
)
def test_a_call_is_seen_once_and_can_be_made_again(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], result: object
) -> None:
    with seen(function) as calls:
        assert function(*args, **kwargs) == result

    ((name, call),) = calls
    assert name == full_name(function)
    assert call(None) == result


def test_methods_are_called_on_a_copy_of_their_object() -> None:
    with seen(Counter.serve, Counter.open) as calls:
        counter = Counter()
        counter.serve("Ada")
        Counter.open(3)

    (_, serve), (_, opened) = calls
    assert serve(None) == "Ada"
    assert isinstance(serve.args[0], Counter)
    assert opened.args == (Counter, 3)
    assert (opened(None), Counter.opened) == (3, 2)


@pytest.mark.django_db(transaction=True)
def test_a_decorated_function_is_seen_before_its_transaction_begins() -> None:
    blocks: list[Any] = []
    with intercept_calls(
        {full_name(in_block)},
        lambda name, call: noted_in(blocks)(transaction.get_connection().in_atomic_block, call),
    ):
        assert in_block(1)

    ((was_open, call),) = blocks
    assert not was_open
    assert call(None)


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


def test_an_exception_of_the_call_is_the_tests_own() -> None:
    with seen(fail) as calls:
        for _ in range(2):
            with pytest.raises(LookupError):
                fail()

    assert len(calls) == 2


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
    assert cells.items() <= original.items()


def test_functions_are_as_before_afterwards() -> None:
    before = {function: function.__code__ for function in (plain, decorated, Counter.serve)}
    with seen(plain, decorated, Counter.serve):
        assert plain.__code__ is not before[plain]
        assert plain.__name__ == "plain"

    assert {function: function.__code__ for function in before} == before


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


def test_a_call_has_the_name_that_its_decorators_keep() -> None:
    with seen(decorated) as calls:
        decorated(1)

    assert calls[0][1].title == f"{full_name(decorated)}()"
    assert list(inspect.signature(calls[0][1].function).parameters) == ["number"]


# Interception of requests.


urlpatterns = [path("echo/", lambda request: HttpResponse(request.body))]

pytestmark = pytest.mark.usefixtures("_urls")


@pytest.fixture
def _urls() -> Any:
    with override_settings(ROOT_URLCONF=__name__, MIDDLEWARE=[]):
        yield


def post(body: str) -> bytes:
    return bytes(Client().post("/echo/", body, content_type="text/plain").content)


def test_a_request_can_be_answered_several_times() -> None:
    def twice(handler: object, environ: dict[str, Any], call_next: CallNext) -> Any:
        body = buffer_body(environ)
        first = call_next({**environ, "wsgi.input": BytesIO(body)})
        second = call_next(environ)
        second.content = first.content + second.content
        return second

    with intercept(twice):
        assert post("hello") == b"hellohello"
    assert post("hello") == b"hello"


@pytest.mark.django_db  # the handler looks after connections that an earlier test has left open
def test_a_wsgi_servers_request_is_intercepted_too() -> None:
    started: list[str] = []
    seen: list[str] = []

    def start(status: str, *args: Any) -> Any:
        started.append(status)

    def watch(handler: object, environ: dict[str, Any], call_next: CallNext) -> Any:
        assert current_request() is None
        call_next({**environ, "PATH_INFO": "/unknown/"})
        response = call_next(environ)
        request = current_request()
        seen.append(request.path if request else "")
        return response

    environ = RequestFactory().post("/echo/", "hello", content_type="text/plain").environ
    with intercept(watch):
        response = WSGIHandler()(environ, start)

    assert (started, seen, b"".join(response)) == (["200 OK"], ["/echo/"], b"hello")
    assert current_request() is None


def test_a_body_without_length_is_left_alone() -> None:
    stream = object()
    environ = {"CONTENT_LENGTH": "", "wsgi.input": stream}

    assert buffer_body(environ) == b""
    assert environ["wsgi.input"] is stream
