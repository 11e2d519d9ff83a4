"""The Content-Security-Policy of the demo's pages outside the admin: no inline code, nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

POLICY = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
_NAMESPACES = ("", "lockstep_lab", "lockstep_editing")
"""Of the pages that have it: the documentation of the APIs brings inline scripts along."""


def content_policy(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware that adds the policy."""

    def respond(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        match = request.resolver_match
        # Django's page of an error, with DEBUG, has inline style and script.
        if match and match.namespace in _NAMESPACES and response.status_code < 500:
            response.headers.setdefault("Content-Security-Policy", POLICY)
        return response

    return respond
