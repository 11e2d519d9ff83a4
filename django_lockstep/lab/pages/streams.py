"""Which pages are sent events as a stream, and which ask again instead."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest

from django_lockstep.lab import conf

__all__ = ["has_place", "taken_place"]

_lock = threading.Lock()
_taken = 0
"""How many threads of this process are streaming now."""


def has_place(request: HttpRequest) -> bool:
    """Whether a page that is now answered may stream: under WSGI each stream takes a thread of the server."""
    if isinstance(request, ASGIRequest) or _has_thread_for_each(request):
        return True
    return bool(request.META.get("wsgi.multithread")) and _taken < conf.streams()


@contextmanager
def taken_place(request: HttpRequest) -> Iterator[bool]:
    """Take one of this process's places for as long as the block runs; False if there is none."""
    global _taken  # noqa: PLW0603 - the places are those of the process
    with _lock:
        free = has_place(request)
        _taken += free
    try:
        yield free
    finally:
        with _lock:
            _taken -= free


def _has_thread_for_each(request: HttpRequest) -> bool:
    """Whether the server is that of runserver, which starts a thread for each connection."""
    software = str(request.META.get("SERVER_SOFTWARE", ""))
    return bool(request.META.get("wsgi.multithread")) and software.startswith("WSGIServer/")
