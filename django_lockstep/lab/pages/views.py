"""Pages of the lab, for staff, or for everyone: races, and the isolation anomalies, which are races, too.

Races run in a separate process on a scratch database: no row of the project is read, shown or changed. Each run takes a
processor for some seconds and a new database on the server, so pages run races only if ``LOCKSTEP_LAB_RUNS_IN_PAGES``
is on, and one at a time. A run begins with a POST only: a link may contain a schedule, but the user has to press the
button. It continues while pages show its progress; its result is kept, and downloaded without another run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import wraps
from typing import Any

from django.apps import apps
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme, urlencode
from django.utils.safestring import mark_safe
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from django_lockstep.lab import conf
from django_lockstep.lab.anomalies import ANOMALIES, LEVELS, POSSIBLE, SOURCES, race_name
from django_lockstep.lab.explorer import ExplorerError, svg
from django_lockstep.lab.explorer.render.moves import moves_of, outcome_cards
from django_lockstep.lab.explorer.render.reports import RaceReport, as_html, as_json
from django_lockstep.lab.explorer.results import Run
from django_lockstep.lab.explorer.search.schedules import parse_schedule
from django_lockstep.lab.pages.code import race_code
from django_lockstep.lab.pages.exploring import start_races
from django_lockstep.lab.pages.process import RunRefused
from django_lockstep.lab.pages.store import ShownRace, Store, open_store
from django_lockstep.lab.races import Race, named_races, registered_races, replay_test
from django_lockstep.lab.wording import gettext as _
from django_lockstep.lab.wording import localized

NARROW_LANE = 176
"""Pixels of a lane that is drawn for a phone, or for a third of a page."""
LONGEST = 500
"""Moves that a schedule on a page may have."""
REPORTS = {"html": as_html, "json": as_json}
"""What the last exploration of a race can be downloaded as."""
View = Callable[..., HttpResponseBase]


def may_use_lab(request: HttpRequest) -> bool:
    """Whether the user may open the lab's pages, and start races from them where these run."""
    return conf.public() or (request.user.is_active and request.user.is_staff)


def for_lab_users(view: View) -> View:
    """Allow staff, redirect anonymous users to the login, and refuse others; allow everyone if the lab is public."""

    @wraps(view)
    def guarded(request: HttpRequest, *args: object, **kwargs: object) -> HttpResponseBase:
        if may_use_lab(request):
            return view(request, *args, **kwargs)
        if not request.user.is_authenticated:
            return redirect_to_login(request.get_full_path())
        raise PermissionDenied

    return guarded


def for_looks(view: View) -> View:
    """Let users of the lab look at a page; nothing keeps its answers."""
    return require_safe(never_cache(for_lab_users(view)))


def for_runs(view: View) -> View:
    """Let users of the lab look at a page, and run by POST what it shows; nothing keeps its answers."""
    guarded = never_cache(require_http_methods(["GET", "HEAD", "POST"])(for_lab_users(view)))
    # ATOMIC_REQUESTS would keep a transaction open for as long as that runs.
    return transaction.non_atomic_requests(guarded)


@for_looks
def races(request: HttpRequest) -> HttpResponse:
    return render(request, "lockstep_lab/races.html", races_context(request))


def races_context(request: HttpRequest) -> dict[str, Any]:
    """Return the races by story, those with the words that are searched for, each with its last result."""
    store, words = open_store(), request.GET.get("q", "").lower().split()
    registered, results, stories = registered_races(), store.results(), dict[str, list[Any]]()
    for name, race in registered.items():
        if all(word in f"{name} {race.text} {localized(race.text)}".lower() for word in words):
            stories.setdefault(name.partition(":")[0], []).append((race, results.get(name)))
    number = sum(map(len, stories.values()))
    return {"stories": stories, "number": number, "words": " ".join(words), **live_context(request, store, registered)}


def live_context(request: HttpRequest, store: Store, names: Iterable[str]) -> dict[str, Any]:
    """Return what a page shows of the run that goes on, and of the last one if that was of something on the page.

    From now on the page watches the run.
    """
    run = store.run()
    if run is not None and run.active:
        store.watch()
    return {
        "run": run,
        "concerned": run is not None and not set(run.progress.names).isdisjoint(names),
        "runs": conf.runs_in_pages(),
        "htmx": apps.is_installed("django_htmx"),
        "page": request.path,
    }


@for_runs
def race(request: HttpRequest, name: str) -> HttpResponse:
    """Show one race, and what its last run, or that of a ``schedule``, came to; POST starts another one."""
    chosen = named_races().get(name)
    if chosen is None:
        raise Http404(f"There is no race {name!r}")
    parameters = request.POST if request.method == "POST" else request.GET
    schedule = parameters.get("schedule", "")
    context: dict[str, Any] = {"race": chosen, "code": race_code(chosen), "schedule": schedule[:LONGEST]}
    store, status = open_store(), 200
    try:
        schedule = _clean_schedule(schedule, chosen)
        if request.method == "POST":
            start_races(store, [name], schedule=schedule)
            # The address of the result names its schedule, so that it can be shared.
            query = f"?{urlencode({'schedule': schedule})}" if schedule else ""
            return HttpResponseRedirect(f"{request.path}{query}")
        if (shown := store.shown(name, schedule=schedule)) is not None:
            report = shown.report
            drawings = _stepped_drawings(report)
            context |= {"report": report, "cards": outcome_cards(report), "rows": report.rows(), "drawings": drawings}
            context["last"] = shown.result
    except RunRefused as refused:
        context["refusal"], status = refused.args[0], refused.status
    return render(request, "lockstep_lab/race.html", {**context, **live_context(request, store, [name])}, status=status)


@for_looks
def report(request: HttpRequest, name: str, form: str) -> HttpResponse:
    """Return the last exploration of a race as a file: it is kept, so that nothing has to run."""
    shown = open_store().shown(name) if name in named_races() else None
    if shown is None or form not in REPORTS:
        raise Http404(f"There is no exploration of {name!r} as {form!r}")
    return attachment(REPORTS[form]([shown.report]), file_name(name, form=form))


@for_looks
def schedule(request: HttpRequest, name: str, schedule: str, form: str) -> HttpResponse:
    """Return a schedule that was run as a file."""
    store = open_store()
    kept = [store.shown(name, schedule=schedule), store.shown(name)] if name in named_races() else []
    for shown in filter(None, kept):
        for run in shown.report.runs:
            if run.schedule == schedule and form in FORMS:
                return attachment(FORMS[form](shown, run), file_name(name, schedule, form=form))
    raise Http404(f"Schedule {schedule!r} of {name!r} was not run, or is not kept as {form!r}")


@for_looks
def anomalies(request: HttpRequest) -> HttpResponse:
    """Show the published results; each leads to the page of its race, which finds out on this server."""
    rows = [
        (anomaly, [(race_name(name, level), name in POSSIBLE[level]) for level in LEVELS])
        for name, anomaly in ANOMALIES.items()
    ]
    context = {"levels": LEVELS, "rows": rows, "sources": SOURCES, "runs": conf.runs_in_pages()}
    return render(request, "lockstep_lab/anomalies.html", context)


def _stepped_drawings(report: RaceReport) -> list[dict[str, Any]]:
    """Return the report's drawings, each also in narrow lanes, with the moves to step through."""
    drawings = []
    for number, drawing in enumerate(report.drawings(), start=1):
        run, ident = drawing["run"], f"run-{number}"
        narrow = svg(run, ident=f"{ident}-narrow", styled=False, lane_width=NARROW_LANE, language=None)
        # svg() has escaped everything that came from outside.
        drawings.append({**drawing, "narrow": mark_safe(narrow), "moves": list(moves_of(run)), "ident": ident})  # noqa: S308
    return drawings


def _clean_schedule(schedule: str, race: Race) -> str:
    """Return the schedule in capitals. Raises `RunRefused` if this race cannot have it."""
    schedule = schedule.strip().upper()
    if len(schedule) > LONGEST:
        text = _("A schedule of {number} moves is too long; the limit is {limit}", number=len(schedule), limit=LONGEST)
        raise RunRefused(text, status=400)
    try:
        parse_schedule(schedule, actors=len(race.scenario.actors))
    except ExplorerError as error:
        raise RunRefused(str(error), status=400) from error
    return schedule


# Runs that go on: start one, stop it, and how far it is.


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
        context = {**races_context(request), "refusal": refused.args[0]}
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


def answer_progress(request: HttpRequest, template: str | None = None) -> HttpResponse:
    """Answer with the run's progress in this template, or in the run's own; a page that asks counts as watching."""
    store = open_store()
    run = store.run()
    if run is None or not run.active:
        return HttpResponse(headers={"HX-Trigger": "over"})
    store.watch()
    return render(request, template or run.progress.template, {"run": run, "progress": run.progress})


progress = for_looks(answer_progress)
"""For the page that shows the run and asks again each second."""


# Files that are offered for download.

FORMS: Mapping[str, Callable[[ShownRace, Run], str]] = {
    "svg": lambda shown, run: svg(run),
    "html": lambda shown, run: as_html([replace(shown.report, exploration=None, runs=(run,), serial=())]),
    "py": lambda shown, run: replay_test(shown.report.name, run.schedule),
}
"""What a schedule can be downloaded as: a drawing, a report, a test for pytest."""
_TYPES = {
    "svg": "image/svg+xml",
    "html": "text/html",
    "json": "application/json",
    "sarif": "application/sarif+json",
    "xml": "application/xml",
    "py": "text/x-python",
}


def file_name(*parts: str, form: str) -> str:
    """Return the name of a file whose ending is its form; that of a test is one by which pytest finds it."""
    # Names of races have colons and slashes, which names of files cannot have everywhere; a header is ASCII.
    stem = "-".join(re.sub(r"\W+", "-", part, flags=re.ASCII).strip("-") for part in parts)
    return f"test_{stem.replace('-', '_')}.py" if form == "py" else f"{stem}.{form}"


def attachment(text: str, name: str) -> HttpResponse:
    """Return the text as a file of this name, whose ending decides its type."""
    content_type = f"{_TYPES[name.rpartition('.')[2]]}; charset=utf-8"
    headers = {"Content-Type": content_type, "Content-Disposition": f'attachment; filename="{name}"'}
    return HttpResponse(text, headers=headers)
