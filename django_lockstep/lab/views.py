"""Pages of the lab, for staff: the races there are, and one of them run while you wait.

Exploring puts the tables that a race wrote back as they were before, so that whatever others write to them meanwhile
is lost. Pages therefore run nothing unless ``LOCKSTEP_LAB_RUNS_IN_PAGES`` says that the database is nobody else's. A
run begins with a POST only: a link brings its schedule along, and somebody has to press the button.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps

from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.db import DEFAULT_DB_ALIAS, connection, transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from django_lockstep.lab import conf
from django_lockstep.lab.explorer import ExplorerError, explore, replay
from django_lockstep.lab.explorer.reports import Chapter, chosen_runs
from django_lockstep.lab.explorer.schedules import parse_schedule
from django_lockstep.lab.races import Race, registered

__all__ = ["MAX_SCHEDULES", "TIMEOUT", "race", "races"]

TIMEOUT = 15.0
"""Seconds after which a page's exploration begins no further schedule."""
MAX_SCHEDULES = 2000
"""Schedules that a page's exploration runs at most."""
LONGEST = 500
"""Moves of a schedule that a page takes."""
_DATABASE = DEFAULT_DB_ALIAS
_LOCK = "SELECT pg_try_advisory_lock(hashtextextended('lockstep.lab.views', 0))"
_UNLOCK = "SELECT pg_advisory_unlock(hashtextextended('lockstep.lab.views', 0))"

View = Callable[..., HttpResponse]


class Refused(Exception):
    """The page does not run the race; the message says why, ``status`` is the answer's."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


def staff_only(view: View) -> View:
    """Let staff in, ask others to log in, and refuse those who are logged in and no staff."""

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
    """List the races."""
    return render(request, "lockstep_lab/races.html", {"races": registered().values(), "runs": conf.runs_in_pages()})


# The explorer needs committed data: with ATOMIC_REQUESTS it could not work.
@transaction.non_atomic_requests
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@staff_only
def race(request: HttpRequest, name: str) -> HttpResponse:
    """Show one race; POST explores it, or replays the ``schedule`` that comes with it."""
    chosen = registered().get(name)
    if chosen is None:
        raise Http404(f"There is no race {name!r}")
    given = request.POST if request.method == "POST" else request.GET
    context = {"race": chosen, "schedule": given.get("schedule", "")[:LONGEST], "runs": conf.runs_in_pages()}
    status = 200
    try:
        schedule = _valid(given.get("schedule", ""), chosen)
        if request.method == "POST":
            context["chapter"] = _run(chosen, schedule)
    except Refused as refused:
        context["refusal"], status = str(refused), refused.status
    return render(request, "lockstep_lab/race.html", context, status=status)


def _valid(schedule: str, race: Race) -> str:
    """Return the schedule in capitals. Raises `Refused` for one that no such race has."""
    schedule = schedule.strip().upper()
    if len(schedule) > LONGEST:
        raise Refused(f"A schedule of {len(schedule)} moves is too long; a page takes {LONGEST}", status=400)
    try:
        parse_schedule(schedule, actors=len(race.scenario.actors))
    except ExplorerError as error:
        raise Refused(str(error), status=400) from error
    return schedule


def _run(race: Race, schedule: str) -> Chapter:
    """Explore the race within the page's limits, or replay the one schedule."""
    if not conf.runs_in_pages():
        raise Refused("Races do not run from this page: LOCKSTEP_LAB_RUNS_IN_PAGES is off.", status=403)
    with _alone():
        try:
            return _replayed(race, schedule) if schedule else _explored(race)
        except ExplorerError as error:
            raise Refused(str(error), status=409) from error


def _replayed(race: Race, schedule: str) -> Chapter:
    run = replay(race.scenario, schedule, database=_DATABASE)
    return Chapter(name=race.name, runs=(run,), as_expected=run.holds or not race.holds)


def _explored(race: Race) -> Chapter:
    found = explore(race.scenario, max_schedules=MAX_SCHEDULES, timeout=TIMEOUT, database=_DATABASE)
    runs = tuple(chosen_runs(race.scenario, found, database=_DATABASE))
    return Chapter(name=race.name, exploration=found, runs=runs, as_expected=race.as_expected(found))


@contextmanager
def _alone() -> Iterator[None]:
    """Keep other pages from running a race at the same time, as each puts the other's tables back.

    An advisory lock of this session, at no isolation level in particular. Raises `Refused` where it is taken, and on
    other databases than PostgreSQL.
    """
    if connection.vendor != "postgresql":
        raise Refused(f"Races run on PostgreSQL only; this database is {connection.vendor}.", status=409)
    with connection.cursor() as cursor:
        cursor.execute(_LOCK)
        (taken,) = cursor.fetchone()
        if not taken:
            raise Refused("Another page is running a race; try again when it is done.", status=409)
        try:
            yield
        finally:
            cursor.execute(_UNLOCK)
