"""Runtime checks: what must not happen while a transaction is open, told at the line where it happens.

For development and tests: `RuntimeCheckMiddleware` checks requests, ``pytest --lockstep-warn`` tests. The names of the
reports and their remedies are in the manual, on the page of system checks.
"""

from __future__ import annotations

import functools
import itertools
import logging
import re
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.exceptions import MiddlewareNotUsed
from django.db import connections
from django.db.models import Model, UniqueConstraint
from django.db.models.expressions import Col
from django.db.models.lookups import Exact
from django.http import HttpRequest, HttpResponseBase

from django_lockstep.errors import RuntimeCheckFailed
from django_lockstep.locking.transactions import in_own_atomic

logger = logging.getLogger("lockstep.runtime_checks")

_FOREIGN = (str(Path(__file__).parent), *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")), "<")
_EVENTS = {"http.client.send": "an HTTP request", "smtplib.connect": "a mail"}
_numbers = itertools.count(1)
"""Number what was read and what was locked, in their order."""


@dataclass(frozen=True, slots=True)
class _Block:
    mode: str
    except_in: str
    locked: dict[tuple[Any, Any], int] = field(default_factory=dict)
    """When each row was locked by a query."""


_block: ContextVar[_Block | None] = ContextVar("the innermost block that is checked", default=None)


@contextmanager
def runtime_checks(mode: str | None, *, except_in: str = "") -> Iterator[None]:
    """Check the block, in this thread or task; with None, do not, also inside of another one.

    ``raise`` raises `RuntimeCheckFailed` before the call, ``log`` logs a warning of ``lockstep.runtime_checks``. Lines
    of files whose path matches the regular expression ``except_in`` are not reported.
    """
    if mode is not None:
        _install()
    token = _block.set(None if mode is None else _Block(mode, except_in))
    try:
        yield
    finally:
        _block.reset(token)


class RuntimeCheckMiddleware:
    """Middleware: checks every request as the setting ``LOCKSTEP_WARN`` says; without it, it is not used."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response
        self._mode = getattr(settings, "LOCKSTEP_WARN", None)
        if self._mode is None:
            raise MiddlewareNotUsed

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        with runtime_checks(self._mode):
            return self._get_response(request)


def _report(block: _Block, name: str, text: str) -> None:
    # The innermost line that is neither this library's nor an installed package's.
    frame: Any = sys._getframe(1)
    while frame and frame.f_back and frame.f_code.co_filename.startswith(_FOREIGN):
        frame = frame.f_back
    path, number = (frame.f_code.co_filename, frame.f_lineno) if frame else ("", 0)
    if block.except_in and re.search(block.except_in, path):
        return
    line = f"{path}:{number}"
    if block.mode == "raise":
        raise RuntimeCheckFailed(name, line, text)
    logger.warning("%s: %s (%s)", line, text, name)


def _call(block: _Block, what: str) -> None:
    aliases = [c.alias for c in connections.all(initialized_only=True) if in_own_atomic(c)]
    if aliases:
        _report(block, "open-transaction", f"{what} while a transaction on {', '.join(aliases)} is open")


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if event in _EVENTS and (block := _block.get()) is not None:
        _call(block, _EVENTS[event])


# Each of these runs before a method of Django's, and may return what runs after it.


def _send(block: _Block, target: Any, *args: Any, **kwargs: Any) -> None:
    # A queue in the database is written by the transaction itself, as it should be.
    if "Database" not in type(target.get_backend() if hasattr(target, "get_backend") else target).__name__:
        _call(block, f"{getattr(target, 'name', None) or type(target).__name__} is sent or enqueued")


def _count(block: _Block, queryset: Any, *args: Any, **kwargs: Any) -> None:
    if queryset.query.select_for_update and queryset._result_cache is None:
        _report(
            block, "no-lock", "count() and aggregate() lock no row, exists() any one, also with select_for_update()"
        )


def _fetch(block: _Block, queryset: Any) -> Callable[[], None] | None:
    if queryset._result_cache is not None:
        return None
    is_locking, connection = queryset.query.select_for_update, connections[queryset.db]
    if is_locking and connection.in_atomic_block and not in_own_atomic(connection):
        _report(block, "no-transaction", "select_for_update() in no transaction but the test's own")

    def note() -> None:
        number = next(_numbers)
        for row in (row for row in queryset._result_cache if isinstance(row, Model)):
            row._state.lockstep_read = number  # type: ignore[attr-defined]
            if is_locking:
                block.locked[row._meta.concrete_model, row.pk] = number

    return note


def _refresh(block: _Block, instance: Any, *args: Any, **kwargs: Any) -> Callable[[], None]:
    return lambda: setattr(instance._state, "lockstep_read", next(_numbers))


def _save(block: _Block, instance: Any, *args: Any, **kwargs: Any) -> None:
    # A versioned instance, also of django-concurrency, is compared with its row when it is saved.
    if not hasattr(instance, "update_if_unchanged") and not hasattr(instance, "_concurrencymeta"):
        since = block.locked.get((instance._meta.concrete_model, instance.pk), 0)
        if getattr(instance._state, "lockstep_read", since) < since:
            _report(block, "late-lock", f"{instance._meta.label} {instance.pk!r} was read before its row was locked")


def _get_or_create(block: _Block, queryset: Any, defaults: Any = None, *args: Any, **kwargs: Any) -> None:
    options, filters = queryset.model._meta, queryset.query.where.children
    names = {lookup.removesuffix("__exact").removesuffix("_id") for lookup in kwargs}
    names |= {options.pk.name} if "pk" in names else set()
    names |= {child.lhs.target.name for child in filters if isinstance(child, Exact) and isinstance(child.lhs, Col)}
    keys = [{column.name} for column in options.concrete_fields if column.unique]
    for model in (options.concrete_model, *options.get_parent_list()):
        keys += map(set, model._meta.unique_together)
        # One by expressions has no fields: what it covers is not known, and not reported.
        keys += [set(c.fields) for c in model._meta.constraints if isinstance(c, UniqueConstraint)]
    if not any(key <= names for key in keys):
        lacking = f"no unique constraint of {options.label} covers {', '.join(sorted(names))}"
        _report(block, "no-constraint", f"two calls may both create: {lacking}")


_METHODS: tuple[tuple[str, str, str, Callable[..., Any]], ...] = (
    ("django.db.models.query", "QuerySet", "_fetch_all", _fetch),
    ("django.db.models.query", "QuerySet", "count", _count),
    ("django.db.models.query", "QuerySet", "exists", _count),
    ("django.db.models.query", "QuerySet", "aggregate", _count),
    ("django.db.models.query", "QuerySet", "get_or_create", _get_or_create),
    ("django.db.models.base", "Model", "refresh_from_db", _refresh),
    ("django.db.models.base", "Model", "save_base", _save),
    ("django.core.mail.message", "EmailMessage", "send", _send),
    ("django.tasks.base", "Task", "enqueue", _send),
    ("celery.app.task", "Task", "apply_async", _send),
    ("time", "", "sleep", lambda block, *args: _call(block, "time.sleep()")),
)
"""What is wrapped once its package is imported, for good: outside of blocks the wrappers do nothing.

With it statements are not compiled once: `locking.statements` leaves query sets alone that others have wrapped.
"""


_installed: set[Any] = set()


def _install() -> None:
    if not _installed:
        # An audit hook hears what urllib, requests and smtplib do, without a wrapper for each.
        sys.addaudithook(_hear)
        _installed.add(_hear)
    for method in _METHODS:
        module, owner, name, before = method
        if method not in _installed and module.partition(".")[0] in sys.modules:
            with suppress(ImportError):  # Django 5.2 has no tasks
                place = import_module(module)
                place = getattr(place, owner) if owner else place
                setattr(place, name, _wrapped(getattr(place, name), before))
                _installed.add(method)


def _wrapped(method: Callable[..., Any], before: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def checked(*args: Any, **kwargs: Any) -> Any:
        block = _block.get()
        after = before(block, *args, **kwargs) if block else None
        result = method(*args, **kwargs)
        if after:
            after()
        return result

    return checked
