"""What leaves the process: e-mail, tasks for workers, HTTP requests; what sends them is wrapped during a recording."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from types import FunctionType
from typing import Any
from unittest import mock

from django.core.mail.backends import locmem
from django.urls import get_resolver

SENT_MAIL, SENT_TASK, SENT_HTTP = "SEND MAIL", "SEND TASK", "SEND HTTP"
"""Stand where SQL would."""
_OF_QUEUES = frozenset({"apply_async", "delay", "enqueue", "send_with_options"})
"""Methods by which the classes of task queues take tasks: of Celery, RQ, Huey, Dramatiq, Django."""
_OF_CLIENTS = (
    ("requests.sessions", "Session", "send"),
    ("httpx", "Client", "send"),
    ("urllib.request", "OpenerDirector", "open"),
)


class Senders(ExitStack):
    """Wraps what sends messages, until it is closed; ``note`` is called with what is sent, before that is."""

    def __init__(self, note: Callable[[str], None]) -> None:
        super().__init__()
        self._note = note
        self._wrapped: set[tuple[type, str]] = set()
        self._modules = 0

    def wrap(self) -> None:
        """Wrap what modules have defined that were imported since the last time."""
        if not self._modules:
            with suppress(Exception):  # whatever an URLconf raises, the first request raises it
                _ = get_resolver().url_patterns  # views import the tasks that they send
        if len(sys.modules) == self._modules:
            return
        self._modules = len(sys.modules)
        for owner, name, what in _senders():
            if (owner, name) not in self._wrapped:
                self._wrapped.add((owner, name))
                self.enter_context(mock.patch.object(owner, name, _noted(vars(owner)[name], what, self._note)))


def _senders() -> Iterator[tuple[type, str, str]]:
    yield locmem.EmailBackend, "send_messages", SENT_MAIL
    for module, name, method in _OF_CLIENTS:
        if module in sys.modules:
            yield getattr(sys.modules[module], name), method, SENT_HTTP
    classes: set[type] = {object}
    waiting: list[type] = [object]
    while waiting:
        # Past metaclasses, which may have a method of this name.
        new: set[type] = set(type.__subclasses__(waiting.pop())) - classes
        classes |= new
        waiting += new
    for owner in classes:
        for name in _OF_QUEUES & vars(owner).keys():
            method = vars(owner)[name]
            if isinstance(method, FunctionType) and not inspect.iscoroutinefunction(method):
                yield owner, name, SENT_TASK


def _noted(send: Callable[..., Any], what: str, note: Callable[[str], None]) -> Callable[..., Any]:
    @functools.wraps(send)
    def noted(*args: Any, **kwargs: Any) -> Any:
        note(what)
        return send(*args, **kwargs)

    return noted
