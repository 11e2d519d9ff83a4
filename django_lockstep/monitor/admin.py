"""The current locks and waits, as pages of the admin."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Literal

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import DEFAULT_DB_ALIAS, DataError, NotSupportedError, ProgrammingError, connections
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_lockstep.monitor import Session, lock_report, text
from django_lockstep.monitor.graph import BOX_HEIGHT, BOX_WIDTH, Graph, waits_graph
from django_lockstep.monitor.models import Lock
from django_lockstep.monitor.text import session_name

logger = logging.getLogger("lockstep.monitor")

SECONDS = 2
"""Seconds between two refreshes of the page."""
_MAY_END = "lockstep_monitor.end_session"
Ending = Literal["cancel", "terminate"]

_FUNCTIONS: dict[Ending, str] = {"cancel": "pg_cancel_backend", "terminate": "pg_terminate_backend"}
# By its start as well: the server gives the pid of a session that has ended to a new one.
_END = """
SELECT {function}(pid) FROM pg_stat_activity
WHERE pid = %s AND backend_start = %s AND datname = current_database() AND pid <> pg_backend_pid()
"""
_QUESTIONS: dict[Ending, Any] = {
    "cancel": gettext_lazy("Cancel the current statement of this session? Its transaction fails, and is rolled back."),
    "terminate": gettext_lazy("Terminate this session? It loses its connection, and what it has not committed."),
}


@admin.register(Lock)
class LockAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Shows the waits as a graph, and what `manage.py lock_report` prints, to users with ``view_lock``.

    Those with ``end_session`` may cancel statements and terminate sessions of the database.
    """

    def get_urls(self) -> list[URLPattern]:
        # There are no rows to open, add or delete.
        name = f"{self.opts.app_label}_{self.opts.model_name}"
        end = self.admin_site.admin_view(self.end_view)
        return [
            path("", self.admin_site.admin_view(self.changelist_view), name=f"{name}_changelist"),
            *(path(f"<int:pid>/{way}/", end, {"ending": way}, name=f"{name}_{way}") for way in _QUESTIONS),
        ]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> TemplateResponse:
        """Show the locks of the default database; ``?paused`` stops the refreshing."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        seconds = None if "paused" in request.GET else SECONDS
        context: dict[str, Any] = {"title": _("Who waits for whom"), "seconds": seconds}
        try:
            report = lock_report(DEFAULT_DB_ALIAS)
        except NotSupportedError as error:
            context["headline"] = str(error)
        else:
            headline, _newline, details = text(report, width=160).partition("\n")
            graph = waits_graph(report.waits)
            endings = list(_endings(graph)) if request.user.has_perm(_MAY_END) else []
            context |= {"headline": headline, "details": details.strip("\n"), "endings": endings}
            context |= {"graph": graph, "box_width": BOX_WIDTH, "box_height": BOX_HEIGHT}
        return self._page(request, "locks", {**context, **(extra_context or {})})

    def end_view(self, request: HttpRequest, pid: int, ending: Ending) -> HttpResponse:
        """Ask before a statement is cancelled or a session terminated; POST does it."""
        if not (self.has_view_permission(request) and request.user.has_perm(_MAY_END)):
            raise PermissionDenied
        if request.method == "POST":
            try:
                self._end(request, pid, ending)
            except (ValueError, DataError):
                text = "started must be the time at which the session began: take it from the page that asks"
                return HttpResponse(text, status=400, content_type="text/plain")
        elif session := _session(pid):
            context = {"title": session_name(session), "session": session, "question": _QUESTIONS[ending]}
            return self._page(request, "end_session", context)
        else:
            self._say_gone(request, pid)
        return HttpResponseRedirect(reverse(f"{self.admin_site.name}:lockstep_monitor_lock_changelist"))

    def _end(self, request: HttpRequest, pid: int, ending: Ending) -> None:
        # The session that the question was about, and not another one that has got its pid since.
        started = parse_datetime(request.POST.get("started", ""))
        if started is None:
            raise ValueError("not a time")
        try:
            ended = end_session(pid, started, ending=ending, using=DEFAULT_DB_ALIAS)
        except ProgrammingError as error:
            messages.error(request, _("The server refuses: %(reason)s") % {"reason": str(error).partition("\n")[0]})
            return
        if not ended:
            self._say_gone(request, pid)
            return
        logger.warning("User %s asked the server to %s process %d", request.user, ending, pid)
        messages.success(request, _("The server was asked to end it."))

    def _say_gone(self, request: HttpRequest, pid: int) -> None:
        messages.info(request, _("Session %(pid)d has ended in the meantime, or waits for nothing.") % {"pid": pid})

    def _page(self, request: HttpRequest, name: str, context: dict[str, Any]) -> TemplateResponse:
        request.current_app = self.admin_site.name
        context = {**self.admin_site.each_context(request), "opts": self.opts, **context}
        return TemplateResponse(request, f"lockstep_monitor/{name}.html", context)


def end_session(pid: int, started: datetime, *, ending: Ending, using: str) -> bool:
    """Cancel the current statement of the session that has this pid since then, or terminate the session.

    A cancelled statement fails with SQLSTATE 57014, and its transaction with it unless a savepoint is before it; a
    terminated session loses its transaction and its connection. Returns False if there is no such session in the
    database any more. Raises `django.db.ProgrammingError` if the role may not: that takes the same role, or
    ``pg_signal_backend``; a superuser's sessions are a superuser's to end.
    """
    with connections[using].cursor() as cursor:
        cursor.execute(_END.format(function=_FUNCTIONS[ending]), [pid, started])
        row = cursor.fetchone()
    return row is not None and bool(row[0])


def _session(pid: int) -> Session | None:
    try:
        return lock_report(DEFAULT_DB_ALIAS).sessions.get(str(pid))
    except NotSupportedError as error:
        raise Http404(str(error)) from error


def _endings(graph: Graph) -> Iterator[tuple[Session, str, list[Ending]]]:
    """Yield the sessions of the graph, with their names and what may be done about each."""
    for session in (box.session for box in graph.boxes):
        if session.pid is not None and session.started is not None:
            # One that is idle has no statement to cancel.
            yield session, session_name(session), ["terminate"] if session.is_idle else ["cancel", "terminate"]
