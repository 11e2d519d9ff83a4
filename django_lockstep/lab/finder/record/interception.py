"""Interception of what a test does: calls of the project's functions, and requests, by whatever client sends them."""

from __future__ import annotations

import copy
import inspect
import io
import sys
import threading
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any
from unittest import mock

from django.core.handlers.base import BaseHandler
from django.core.handlers.wsgi import WSGIHandler
from django.core.management.base import BaseCommand, OutputWrapper
from django.http import HttpRequest
from django.test.client import AsyncClientHandler, ClientHandler, FakePayload

from django_lockstep.lab.finder.record.fingerprints import Fingerprints
from django_lockstep.lab.finder.record.reader import StatementReader, instances

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
    if isinstance(value, BaseCommand):
        # Where it has printed is its test's, and closed behind that.
        value = copy.copy(value)
        value.stdout, value.stderr = OutputWrapper(io.StringIO()), OutputWrapper(io.StringIO())
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


# Requests that a test has handled: by test clients, by a live server, by a WSGI client.

CallNext = Callable[[dict[str, Any]], Any]
"""Handles an environ as the handler would have done, and returns its response."""

FORCED_USER = "django_lockstep.user"
"""In an environ, the user that Django REST framework is to take the request for authenticated as."""
_requests: ContextVar[list[HttpRequest] | None] = ContextVar("_requests", default=None)


@contextmanager
def intercept(on_request: Callable[[BaseHandler, dict[str, Any], CallNext], Any]) -> Iterator[None]:
    """Have ``on_request(handler, environ, call_next)`` answer all requests of the process.

    The classes are changed, because test clients make a handler of their own each; they are put back at the end.
    """

    def of_client(handler: ClientHandler, environ: dict[str, Any]) -> Any:
        with _noting():
            return on_request(handler, environ, lambda changed: client(handler, changed))

    def of_wsgi(handler: WSGIHandler, environ: dict[str, Any], start_response: Any) -> Any:
        begun: list[tuple[Any, ...]] = []

        def handle(changed: dict[str, Any]) -> Any:
            return wsgi(handler, changed, lambda *arguments: begun.append(arguments))

        with _noting():
            response = on_request(handler, environ, handle)
        # A server takes one response, however often the request was answered.
        start_response(*begun[-1])
        return response

    def noted(handler: BaseHandler, request: HttpRequest) -> Any:
        if (requests := _requests.get()) is not None:
            requests.append(request)
        if FORCED_USER in request.META:
            # As its force_authenticate() does, which has set another user by now.
            request._force_auth_user = request.META[FORCED_USER]  # type: ignore[attr-defined]
        return get_response(handler, request)

    client: Any = ClientHandler.__call__
    wsgi: Any = WSGIHandler.__call__
    get_response: Any = BaseHandler.get_response
    with (
        mock.patch.object(ClientHandler, "__call__", of_client),
        mock.patch.object(WSGIHandler, "__call__", of_wsgi),
        mock.patch.object(BaseHandler, "get_response", noted),
    ):
        yield


@contextmanager
def intercept_async(on_request: Callable[[bytes, Callable[[], Awaitable[Any]]], Awaitable[Any]]) -> Iterator[None]:
    """Have ``await on_request(body, call_next)`` answer the requests of asynchronous test clients."""

    async def of_client(handler: AsyncClientHandler, scope: dict[str, Any]) -> Any:
        # It can be read once: the handler gets a stream of its own.
        body: bytes = scope["_body_file"].read() if "_body_file" in scope else b""
        with _noting():
            return await on_request(body, lambda: client(handler, {**scope, "_body_file": FakePayload(body)}))

    async def noted(handler: BaseHandler, request: HttpRequest) -> Any:
        if (requests := _requests.get()) is not None:
            requests.append(request)
        return await get_response(handler, request)

    client: Any = AsyncClientHandler.__call__
    get_response: Any = BaseHandler.get_response_async
    with (
        mock.patch.object(AsyncClientHandler, "__call__", of_client),
        mock.patch.object(BaseHandler, "get_response_async", noted),
    ):
        yield


@contextmanager
def _noting() -> Iterator[None]:
    """Note the requests that handlers make meanwhile."""
    token = _requests.set([])
    try:
        yield
    finally:
        _requests.reset(token)


def current_request() -> HttpRequest | None:
    """Return the request that the handler made of the environ, while ``on_request`` runs; None before it is made."""
    requests = _requests.get()
    return requests[-1] if requests else None


def buffer_body(environ: dict[str, Any]) -> bytes:
    """Return the request's body, and leave it in the environ to be read again."""
    try:
        length = int(environ.get("CONTENT_LENGTH") or 0)
    except ValueError:  # Django takes it for 0 too
        length = 0
    body: bytes = environ["wsgi.input"].read(length) if length > 0 else b""
    # Without a body the stream stays as it is: a test may have put something of its own there.
    if body:
        environ["wsgi.input"] = io.BytesIO(body)
    return body
