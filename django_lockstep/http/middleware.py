"""Answers conflicts that views did not handle."""

from __future__ import annotations

from django.db import connections
from django.http import HttpRequest, HttpResponse
from django.utils.deprecation import MiddlewareMixin

from django_lockstep.http.problems import problem_of


class ConcurrencyMiddleware(MiddlewareMixin):
    """Answers conflicts with 409, 412 or 503 instead of 500, as JSON or as a page.

    The page is the project's ``409.html`` (or ``503.html``, and so on), or a built-in one. Replaces
    django-concurrency's middleware. The request's writes under ``ATOMIC_REQUESTS`` are rolled back.
    """

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """Return the answer to a conflict; None for every other error."""
        problem = problem_of(exception)
        return None if problem is None else problem.to_response(request)


def roll_back_request() -> None:
    """Roll back the request's writes under ``ATOMIC_REQUESTS``: Django itself does so only for exceptions."""
    for connection in connections.all(initialized_only=True):
        if connection.settings_dict["ATOMIC_REQUESTS"] and connection.in_atomic_block:
            # ATOMIC_REQUESTS commits every response that is not an exception, also this refusal.
            connection.set_rollback(True)
