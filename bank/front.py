"""The front page: both kinds of locking side by side, and a button that races them."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from textwrap import dedent
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from accounts.models import Account
from django_lockstep.lab import conf
from django_lockstep.lab.explorer.render.reports import RaceReport
from django_lockstep.lab.pages.exploring import start_races
from django_lockstep.lab.pages.process import RunRefused
from django_lockstep.lab.pages.store import Store, open_store
from django_lockstep.lab.pages.views import live_context, may_use_lab, stepped_drawings

__all__ = ["front"]

_METHODS: dict[str, Callable[..., Any]] = {
    "front:pessimistic": Account.withdraw,
    "front:optimistic": Account.try_withdraw,
}
"""The method that each race is about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One of the two ways."""

    race: str
    """The race's name."""
    code: str
    """Its statements."""
    method: str
    """Its name."""
    report: RaceReport | None
    """What racing it found, if it was raced here."""

    @property
    def drawings(self) -> list[dict[str, Any]]:
        """The first run, to step through."""
        ident = self.race.replace(":", "-")
        return stepped_drawings(self.report, prefix=ident)[:1] if self.report else []


# ATOMIC_REQUESTS would keep a transaction open for as long as the races run.
@transaction.non_atomic_requests
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def front(request: HttpRequest) -> HttpResponse:
    """Show the page, and what the last race came to; POST races both methods, for those who may."""
    runs = conf.runs_in_pages() and may_use_lab(request)
    store, context, status = open_store(), dict[str, Any](), 200
    if request.method == "POST":
        if not runs:
            raise PermissionDenied
        try:
            start_races(store, list(_METHODS))
            return redirect("front")
        except RunRefused as refused:
            context["refusal"], status = str(refused), refused.status
    context |= {"panels": list(_panels(store)), **(live_context(request, store) if runs else {}), "runs": runs}
    return render(request, "bank/front.html", context, status=status)


def _panels(store: Store) -> Iterator[Panel]:
    for race, method in _METHODS.items():
        name, shown = f"{method.__module__}.{method.__qualname__}", store.shown(race)
        yield Panel(race=race, code=code_of(method), method=name, report=shown.report if shown else None)


def code_of(method: Callable[..., Any]) -> str:
    """Return the method's statements as they stand in its file, without the signature and the docstring."""
    source = dedent(inspect.getsource(inspect.unwrap(method)))
    (definition,) = ast.parse(source).body
    assert isinstance(definition, ast.FunctionDef)  # noqa: S101 - a method's source is one definition
    lines = source.splitlines()[definition.body[1].lineno - 1 :]
    return dedent("\n".join(lines))
