"""The front page: no lock, a row lock and a version side by side, and a button that races the three."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import get_language
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from accounts.models import Account
from bank import races
from django_lockstep.lab import conf
from django_lockstep.lab.explorer import svg
from django_lockstep.lab.explorer.render.moves import ShownMove, moves_of
from django_lockstep.lab.explorer.results import Exploration, Run
from django_lockstep.lab.pages.code import CodeLine, source_lines
from django_lockstep.lab.pages.exploring import start_races
from django_lockstep.lab.pages.process import RunRefused
from django_lockstep.lab.pages.store import LastResult, ShownRace, Store, open_store
from django_lockstep.lab.pages.views import NARROW_LANE, answer_progress, for_lab_users, live_context, may_use_lab

_PROGRESS = "bank/front_progress.html"


@dataclass(frozen=True, slots=True, kw_only=True)
class Approach:
    """One of the three columns: what is raced, and how it reads."""

    race: str
    title: str | Promise
    sentence: str | Promise
    method: Callable[..., Any]
    """What the column is about."""
    caller: Callable[..., Any]
    """What each of the two actors runs."""


APPROACHES = (
    Approach(
        race="front:without",
        title=_("Without a lock"),
        sentence=_("Read, compute, write. The second write overwrites the first."),
        method=races.unprotected_withdraw,
        caller=races.without_lock,
    ),
    Approach(
        race="front:pessimistic",
        title=_("Pessimistic"),
        sentence=_("Lock the row, then read it. The second caller waits."),
        method=Account.withdraw,
        caller=races.with_lock,
    ),
    Approach(
        race="front:optimistic",
        title=_("Optimistic"),
        sentence=_("Write only if the version is unchanged. The second caller reads again."),
        method=Account.try_withdraw,
        caller=races.with_version,
    ),
)


_RACES = tuple(approach.race for approach in APPROACHES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """One way in which the race ended."""

    balance: str
    holds: bool
    lost: str
    """Whose withdrawal is missing."""
    amount: int
    count: int
    """In how many orders of the statements."""
    total: int
    retried: int = 0
    """In how many of them one of the two had to read again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """One order of the statements, to step through."""

    ident: str
    run: Run
    picture: SafeString
    steps: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A column of the page."""

    approach: Approach
    sources: tuple[tuple[CodeLine, ...], ...]
    endings: tuple[Ending, ...] = ()
    """The wrong ones first."""
    drawings: tuple[Drawing, ...] = ()
    """One in which the two meet, then one after the other."""


# ATOMIC_REQUESTS would keep a transaction open for as long as the races run.
@transaction.non_atomic_requests
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def front(request: HttpRequest) -> HttpResponse:
    """Show the page, and what the last race came to; POST races the three, for those who may."""
    runs = conf.runs_in_pages() and may_use_lab(request)
    store, context, status = open_store(), dict[str, Any](), 200
    if request.method == "POST":
        if not runs:
            raise PermissionDenied
        try:
            start_races(store, _RACES, most=1)
            return redirect("front")
        except RunRefused as refused:
            context["refusal"], status = refused.args[0], refused.status
    results = store.results()
    context["panels"] = [
        _panel(approach, store.folder, results.get(approach.race), get_language()) for approach in APPROACHES
    ]
    context |= {**(live_context(request, store, _RACES) if runs else {}), "runs": runs}
    run = context.get("run")
    if run is not None and run.progress.names == _RACES:
        context |= {"progress_url": reverse("front-progress"), "progress_template": _PROGRESS}
    return render(request, "bank/front.html", context, status=status)


@require_safe
@never_cache
@for_lab_users
def progress(request: HttpRequest) -> HttpResponseBase:
    """Answer which of the three is running, as `answer_progress` does."""
    return answer_progress(request, _PROGRESS)


@lru_cache(maxsize=16)  # visitors of one language see the same drawings, until the next run has another result
def _panel(approach: Approach, folder: Path, result: LastResult | None, language: str) -> Panel:
    sources = tuple(source_lines(function) for function in (approach.method, approach.caller))
    shown = Store(folder).shown(approach.race) if result else None
    if shown is None or shown.report.exploration is None:
        return Panel(approach=approach, sources=sources)
    return Panel(
        approach=approach,
        sources=sources,
        endings=tuple(_endings(shown.report.exploration)),
        drawings=tuple(_drawings(approach, shown)),
    )


def _endings(exploration: Exploration) -> Iterator[Ending]:
    """Yield each final balance, the wrong ones first."""
    counts, retried = Counter[tuple[bool, str]](), Counter[tuple[bool, str]]()
    for outcome in exploration.outcomes:
        counts[outcome.holds, outcome.end] += outcome.count
        if any(result not in {"0", "None"} for result in outcome.results.values()):
            retried[outcome.holds, outcome.end] += outcome.count
    for (holds, balance), count in sorted(counts.items()):
        missing = int(Decimal(balance) - races.LEFT)
        lost = next((name for name, amount in races.AMOUNTS.items() if amount == missing), "")
        yield Ending(
            balance=balance,
            holds=holds,
            lost=lost,
            amount=missing,
            count=count,
            total=exploration.schedules,
            retried=retried[holds, balance],
        )


def _drawings(approach: Approach, shown: ShownRace) -> Iterator[Drawing]:
    for number, run in enumerate((*shown.report.runs[:1], *shown.report.serial), start=1):
        ident = f"{approach.race.replace(':', '-')}-{number}"
        # svg() has escaped everything that came from outside.
        picture = mark_safe(svg(run, ident=ident, styled=False, lane_width=NARROW_LANE, language=None))  # noqa: S308
        steps = tuple(_step(run, move) for move in moves_of(run))
        yield Drawing(ident=ident, run=run, picture=picture, steps=steps)


def _step(run: Run, move: ShownMove) -> dict[str, Any]:
    """Return what is shown of a step: whose it is, its line of code, and the balance as each of the two sees it."""
    balances = {
        rows.actor: str(rows.rows[0].get("balance", ""))
        for rows in run.seen
        if rows.move == move.number - 1 and rows.table == Account._meta.db_table and rows.rows
    }
    committed = balances.pop("", "")
    waiting = {step.actor for step in run.steps if step.begun < move.number <= step.ended}
    return {
        "move": move,
        "actor": move.step.actor if move.step else move.actor,
        "line": move.step.source if move.step else "",
        "committed": committed,
        # An actor without an open transaction sees what is committed; one that waits cannot be asked.
        "seen": {
            name: _("waits") if name in waiting else balances.get(name, committed)
            for name in races.AMOUNTS
            if committed
        },
    }
