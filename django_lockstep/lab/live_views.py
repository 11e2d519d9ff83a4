"""Views of runs that go on: start one, stop it, and how far it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from django.core.handlers.asgi import ASGIRequest
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import translation
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from django_lockstep.lab.live.runs import start_run
from django_lockstep.lab.live.store import Store, open_store
from django_lockstep.lab.page_runs import RunRefused
from django_lockstep.lab.races import registered_races
from django_lockstep.lab.views import for_lab_users, races_context

__all__ = ["progress", "start", "stop"]

_PERIOD = 0.5
"""Seconds between two events."""


@transaction.non_atomic_requests
@require_POST
@never_cache
@for_lab_users
def start(request: HttpRequest) -> HttpResponse:
    """Start the ``race`` that is named, or ``all`` of them, and show the list."""
    known = registered_races()
    named = request.POST.get("race", "")
    if not request.POST.get("all") and named not in known:
        raise Http404(f"There is no race {named!r}")
    try:
        start_run(open_store(), list(known) if request.POST.get("all") else [named])
    except RunRefused as refused:
        context = {**races_context(request), "refusal": str(refused)}
        return render(request, "lockstep_lab/races.html", context, status=refused.status)
    return HttpResponseRedirect(reverse("lockstep_lab:races"))


@require_POST
@never_cache
@for_lab_users
def stop(request: HttpRequest) -> HttpResponse:
    """Ask the run of this ``token`` to end, and show the page that asked: the race's, or the list."""
    open_store().stop(request.POST.get("token", ""))
    name = request.POST.get("race", "")
    page = reverse("lockstep_lab:race", args=[name]) if name in registered_races() else reverse("lockstep_lab:races")
    return HttpResponseRedirect(page)


@require_safe
@never_cache
@for_lab_users
def progress(request: HttpRequest) -> HttpResponseBase:
    """Answer how far the run is; who asks watches.

    Under ASGI it is a stream of server-sent events: ``progress`` whenever it goes on, and ``over`` at its end. Under
    WSGI it is a line of the page, which asks again: a stream would take a thread of the server for each page.
    """
    store, language = open_store(), translation.get_language()
    if isinstance(request, ASGIRequest):
        headers = {"X-Accel-Buffering": "no"}  # nginx would keep events back
        return StreamingHttpResponse(_follow(store, language), content_type="text/event-stream", headers=headers)
    line = _line(store, language)
    return HttpResponse(line, headers={} if line else {"HX-Trigger": "over"})


async def _follow(store: Store, language: str) -> AsyncIterator[str]:
    said = None
    while line := _line(store, language):
        # A comment, so that a visitor who has left is noticed.
        yield f"event: progress\ndata: {line}\n\n" if line != said else ":\n\n"
        said = line
        await asyncio.sleep(_PERIOD)
    yield "event: over\ndata: -\n\n"


def _line(store: Store, language: str) -> str:
    """Return how far the run is; nothing if none goes on."""
    store.watch()
    run = store.run()
    if run is None or not run.active:
        return ""
    with translation.override(language):
        return " ".join(render_to_string("lockstep_lab/progress.html", {"run": run}).split())
