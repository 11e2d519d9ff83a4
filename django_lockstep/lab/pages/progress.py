"""Views of runs that go on: start one, stop it, and how far it is."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

from django.core.handlers.asgi import ASGIRequest
from django.db import connections, transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import translation
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from django_lockstep.lab.pages.exploring import start_races
from django_lockstep.lab.pages.process import RunRefused
from django_lockstep.lab.pages.store import Store, open_store
from django_lockstep.lab.pages.views import for_lab_users, races_context, taken_place
from django_lockstep.lab.races import registered_races

__all__ = ["answer_progress", "progress", "start", "stop"]

_STREAM = "text/event-stream"
_PERIOD = 0.25
"""Seconds between two events."""
_CACHE_SECONDS = 0.2
"""Seconds in which all visitors are told the same."""


@transaction.non_atomic_requests
@require_POST
@never_cache
@for_lab_users
def start(request: HttpRequest) -> HttpResponse:
    """Start the ``race`` that is named, or ``all`` of them, and show the list."""
    registered = registered_races()
    named = request.POST.get("race", "")
    if not request.POST.get("all") and named not in registered:
        raise Http404(f"There is no race {named!r}")
    try:
        start_races(open_store(), list(registered) if request.POST.get("all") else [named])
    except RunRefused as refused:
        context = {**races_context(request), "refusal": str(refused)}
        return render(request, "lockstep_lab/races.html", context, status=refused.status)
    return HttpResponseRedirect(reverse("lockstep_lab:races"))


@require_POST
@never_cache
@for_lab_users
def stop(request: HttpRequest) -> HttpResponse:
    """Ask the run of this ``token`` to end, and show the ``page`` of this site that asked, or the list."""
    open_store().stop(request.POST.get("token", ""))
    page = request.POST.get("page", "")
    here = url_has_allowed_host_and_scheme(page, allowed_hosts=None)
    return HttpResponseRedirect(page if here else reverse("lockstep_lab:races"))


@require_safe
@never_cache
@for_lab_users
def progress(request: HttpRequest) -> HttpResponseBase:
    """Answer how far the run is; who asks watches.

    Who accepts a stream gets server-sent events: ``progress`` whenever it goes on, and ``over`` at its end; under WSGI
    only as many as `django_lockstep.lab.pages.views` has places for, the others a single event. Who does not accept
    one gets a line of the page, and asks again.
    """
    return answer_progress(request)


def answer_progress(request: HttpRequest, template: str | None = None) -> HttpResponseBase:
    """Answer how far the run is, as this template shows it, or as the run's own line."""
    line = functools.partial(_line, open_store().folder, translation.get_language(), template)
    if _STREAM in request.headers.get("accept", ""):
        events = _events(line)
        stream = _slowly(events) if isinstance(request, ASGIRequest) else _in_this_thread(events, request)
        headers = {"X-Accel-Buffering": "no"}  # nginx would keep events back
        return StreamingHttpResponse(stream, content_type=_STREAM, headers=headers)
    text = line()
    return HttpResponse(text, headers={} if text else {"HX-Trigger": "over"})


def _events(render: Callable[[], str]) -> Iterator[str]:
    said = None
    while line := render():
        # A comment, so that a visitor who has left is noticed.
        yield f"event: progress\ndata: {line}\n\n" if line != said else ":\n\n"
        said = line
    yield "event: over\ndata: -\n\n"


async def _slowly(events: Iterator[str]) -> AsyncIterator[str]:
    for event in events:
        yield event
        await asyncio.sleep(_PERIOD)


def _in_this_thread(events: Iterator[str], request: HttpRequest) -> Iterator[str]:
    # The thread's connections would stay open for as long as the page is watched.
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close()
    with taken_place(request) as free:
        for event in events:
            yield event
            if not free:
                return  # the browser connects again, after a time of its own
            time.sleep(_PERIOD)


def _line(folder: Path, language: str, template: str | None) -> str:
    """Return how far the run is, in one line; nothing if none goes on."""
    return _rendered(folder, language, template, int(time.monotonic() / _CACHE_SECONDS))


# Many visitors watch the same run: what is read and rendered for one of them is so for all.
@functools.lru_cache(maxsize=16)
def _rendered(folder: Path, language: str, template: str | None, _: int) -> str:
    store = Store(folder)
    run = store.run()
    if run is None or not run.active:
        return ""
    store.watch()
    with translation.override(language):
        text = render_to_string(template or run.progress.template, {"run": run, "progress": run.progress})
    return " ".join(text.split())
