"""Pages of the lab, for staff: a list of races, and a page that runs one of them.

Races run in a separate process on a scratch database: no row of the project is read, shown or changed. Each run takes a
processor for some seconds and a new database on the server, so pages run races only if ``LOCKSTEP_LAB_RUNS_IN_PAGES``
is on, and one at a time. A run begins with a POST only: a link may contain a schedule, but the user has to press the
button.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps

from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.db import connection, transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from django_lockstep.lab import conf
from django_lockstep.lab.explorer import ExplorerError
from django_lockstep.lab.explorer.reports import RaceReport
from django_lockstep.lab.explorer.schedules import parse_schedule
from django_lockstep.lab.isolated import RaceRequest, run_isolated
from django_lockstep.lab.races import Race, registered_races

__all__ = ["MAX_SCHEDULES", "TIMEOUT", "race", "races"]

TIMEOUT = 15.0
"""Seconds after which a page's exploration starts no further schedule."""
MAX_SCHEDULES = 2000
"""Schedules that a page's exploration runs at most."""
LONGEST = 500
"""Moves that a schedule on a page may have."""
_LOCK = "SELECT pg_try_advisory_lock(hashtextextended('lockstep.lab.views', 0))"
_UNLOCK = "SELECT pg_advisory_unlock(hashtextextended('lockstep.lab.views', 0))"

View = Callable[..., HttpResponse]


class RunRefused(Exception):
    """The page does not run the race; the message says why, ``status`` is the response's."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


def staff_only(view: View) -> View:
    """Allow staff, redirect anonymous users to the login, and refuse other users."""

    @wraps(view)
    def guarded(request: HttpRequest, *args: object, **kwargs: object) -> HttpResponse:
        if not request.user.is_authenticated:
            return redirect_to_login(request.get_full_path())
        if not (request.user.is_active and request.user.is_staff):
            raise PermissionDenied
        return view(request, *args, **kwargs)

    return guarded


@require_safe
@staff_only
def races(request: HttpRequest) -> HttpResponse:
    return render(
        request, "lockstep_lab/races.html", {"races": registered_races().values(), "runs": conf.runs_in_pages()}
    )


# ATOMIC_REQUESTS would keep a transaction open for as long as the race runs.
@transaction.non_atomic_requests
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@staff_only
def race(request: HttpRequest, name: str) -> HttpResponse:
    """Show one race; POST explores it, or replays the ``schedule`` that comes with it."""
    chosen = registered_races().get(name)
    if chosen is None:
        raise Http404(f"There is no race {name!r}")
    given = request.POST if request.method == "POST" else request.GET
    context = {"race": chosen, "schedule": given.get("schedule", "")[:LONGEST], "runs": conf.runs_in_pages()}
    status = 200
    try:
        schedule = _clean_schedule(given.get("schedule", ""), chosen)
        if request.method == "POST":
            context["report"] = _run(chosen, schedule)
    except RunRefused as refused:
        context["refusal"], status = str(refused), refused.status
    return render(request, "lockstep_lab/race.html", context, status=status)


def _clean_schedule(schedule: str, race: Race) -> str:
    """Return the schedule in capitals. Raises `RunRefused` if this race cannot have it."""
    schedule = schedule.strip().upper()
    if len(schedule) > LONGEST:
        raise RunRefused(f"A schedule of {len(schedule)} moves is too long; the limit is {LONGEST}", status=400)
    try:
        parse_schedule(schedule, actors=len(race.scenario.actors))
    except ExplorerError as error:
        raise RunRefused(str(error), status=400) from error
    return schedule


def _run(race: Race, schedule: str) -> RaceReport:
    """Explore the race within the page's limits, or replay the one schedule."""
    if not conf.runs_in_pages():
        raise RunRefused("Races do not run from this page: LOCKSTEP_LAB_RUNS_IN_PAGES is off.", status=403)
    request = RaceRequest(
        races=tuple(conf.races()),
        name=race.name,
        schedule=schedule,
        max_schedules=MAX_SCHEDULES,
        timeout=TIMEOUT,
    )
    with _exclusive_run():
        try:
            return run_isolated(request)
        except ExplorerError as error:
            raise RunRefused(str(error), status=409) from error


@contextmanager
def _exclusive_run() -> Iterator[None]:
    """Keep other pages from running a race at the same time, because one keeps a processor busy.

    An exclusive advisory lock of this session, taken without waiting. Raises `RunRefused` if it is taken, and on
    databases other than PostgreSQL.
    """
    if connection.vendor != "postgresql":
        raise RunRefused(f"Races need PostgreSQL; this database is {connection.vendor}.", status=409)
    with connection.cursor() as cursor:
        # Tried, not awaited: a request that waits would keep a thread of the server busy for as long as the race runs.
        cursor.execute(_LOCK)
        (taken,) = cursor.fetchone()
        if not taken:
            raise RunRefused("Another page is running a race. Try again when it has finished.", status=409)
        try:
            yield
        finally:
            cursor.execute(_UNLOCK)
