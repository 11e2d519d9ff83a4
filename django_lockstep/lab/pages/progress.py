"""Views of runs that go on: start one, stop it, and how far it is."""

from __future__ import annotations

from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from django_lockstep.lab.pages.exploring import start_races
from django_lockstep.lab.pages.process import RunRefused
from django_lockstep.lab.pages.store import open_store
from django_lockstep.lab.pages.views import for_lab_users, races_context
from django_lockstep.lab.races import registered_races

__all__ = ["answer_progress", "progress", "start", "stop"]


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
def progress(request: HttpRequest) -> HttpResponse:
    """Answer how far the run is, in a line for the page that shows it and asks again each second."""
    return answer_progress(request)


def answer_progress(request: HttpRequest, template: str | None = None) -> HttpResponse:
    """Answer with the run's progress in this template, or in the run's own; a page that asks counts as watching."""
    store = open_store()
    run = store.run()
    if run is None or not run.active:
        return HttpResponse(headers={"HX-Trigger": "over"})
    store.watch()
    return render(request, template or run.progress.template, {"run": run, "progress": run.progress})
