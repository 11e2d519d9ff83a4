"""The arena: strategies as lanes under one load of real worker processes, watched while they run."""

from __future__ import annotations

import random
from typing import Any

from django import forms
from django.db import router
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from accounts.models import Account
from accounts.races.load import Mix, Workload
from accounts.races.run import NAMES, RunConfig
from bank.arena_run import KEPT, ArenaProgress, ArenaRequest, ArenaResult
from django_lockstep.lab.pages.process import RunRefused, start_run
from django_lockstep.lab.pages.store import open_store
from django_lockstep.lab.pages.views import answer_progress, for_lab_users, for_runs, live_context
from django_lockstep.lab.simulator.load_plan import LoadPlan
from django_lockstep.lab.simulator.render import as_json

_FIRST = ["naive", "pessimistic", "conditional_update", "optimistic"]
_LIVE = "bank/arena_live.html"
_LONGEST = 60
"""Seconds that all strategies may take together."""
_ROUNDS = 3
"""At most; none is shorter than a second."""


class ArenaForm(forms.Form):
    """The load."""

    strategies = forms.MultipleChoiceField(
        label=_("Strategies"),
        choices=[(name, name) for name in NAMES],
        initial=_FIRST,
        widget=forms.CheckboxSelectMultiple,
    )
    workers = forms.IntegerField(label=_("Workers"), min_value=1, max_value=16, initial=4)
    accounts = forms.IntegerField(label=_("Accounts"), min_value=1, max_value=100, initial=1)
    deposits = forms.IntegerField(label=_("Deposits, weight"), min_value=0, max_value=10, initial=1)
    withdrawals = forms.IntegerField(label=_("Withdrawals, weight"), min_value=0, max_value=10, initial=1)
    transfers = forms.IntegerField(label=_("Transfers, weight"), min_value=0, max_value=10, initial=0)
    think_time = forms.IntegerField(label=_("Think time in ms"), min_value=0, max_value=200, initial=0)
    seconds = forms.IntegerField(label=_("Seconds for each strategy"), min_value=1, max_value=10, initial=3)

    def clean(self) -> dict[str, Any]:
        """Refuse what cannot be run, or would take too long."""
        values: dict[str, Any] = super().clean() or {}
        if self.errors:
            return values
        if not (values["deposits"] or values["withdrawals"] or values["transfers"]):
            raise forms.ValidationError(_("One of the weights has to be more than 0."))
        if values["transfers"] and values["accounts"] == 1:
            raise forms.ValidationError(_("Transfers need two accounts or more."))
        if (total := len(values["strategies"]) * values["seconds"]) > _LONGEST:
            message = _("All strategies together would take %(total)s seconds; %(longest)s are allowed.")
            raise forms.ValidationError(message, params={"total": total, "longest": _LONGEST})
        return values

    def request(self) -> ArenaRequest:
        """Return the run that a valid form asks for."""
        values = self.cleaned_data
        mix = Mix(deposit=values["deposits"], withdraw=values["withdrawals"], transfer=values["transfers"])
        return ArenaRequest(
            config=RunConfig(strategies=tuple(values["strategies"]), model=Account, using=router.db_for_write(Account)),
            plan=LoadPlan(
                workers=values["workers"],
                duration=float(values["seconds"]),
                think_time=values["think_time"] / 1000,
                rounds=min(_ROUNDS, values["seconds"]),
            ),
            workload=Workload(accounts=values["accounts"], mix=mix, seed=random.SystemRandom().randrange(10**6)),
        )


@for_runs
def arena(request: HttpRequest) -> HttpResponse:
    """Show the form, and the run that goes on, or the last one; POST starts a run."""
    if request.method == "POST":
        return _start(request)
    # A link fills the form in, and starts nothing.
    return _page(request, ArenaForm(request.GET) if request.GET else ArenaForm())


def _start(request: HttpRequest) -> HttpResponse:
    form = ArenaForm(request.POST)
    if not form.is_valid():
        return _page(request, form, status=400)
    try:
        start_run(open_store(), form.request())
    except RunRefused as refused:
        return _page(request, form, refusal=refused.args[0], status=refused.status)
    query = request.POST.copy()
    query.pop("csrfmiddlewaretoken", None)
    return HttpResponseRedirect(f"{reverse('arena')}?{query.urlencode()}")


def _page(request: HttpRequest, form: ArenaForm, *, refusal: str = "", status: int = 200) -> HttpResponse:
    store = open_store()
    context = {
        **live_context(request, store, ArenaProgress().names),
        "form": form,
        "refusal": refusal,
        "result": store.get(KEPT),
    }
    run = context["run"]
    if run is not None and isinstance(run.progress, ArenaProgress):
        context |= {"progress_url": reverse("arena-lanes"), "progress_template": _LIVE}
    return render(request, "bank/arena.html", context, status=status)


@require_safe
@never_cache
@for_lab_users
def lanes(request: HttpRequest) -> HttpResponseBase:
    """Answer how far each strategy is, as `answer_progress` does."""
    return answer_progress(request, _LIVE)


@require_safe
@for_lab_users
def download(request: HttpRequest, form: str) -> HttpResponse:
    """Answer the last result: the report as JSON, or the lanes as SVG."""
    result: ArenaResult | None = open_store().get(KEPT)
    if result is None:
        raise Http404("The arena has not been run yet")
    if form == "json":
        text, content_type = as_json(result.report), "application/json"
    else:
        text, content_type = render_to_string("bank/lanes.svg", {"lanes": result.lanes}), "image/svg+xml"
    headers = {"Content-Disposition": f'attachment; filename="arena.{form}"'}
    return HttpResponse(text, content_type=f"{content_type}; charset=utf-8", headers=headers)
