"""The pages that answer a conflict."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from django.contrib import messages
from django.contrib.admin import ModelAdmin
from django.contrib.admin.options import IS_POPUP_VAR
from django.contrib.admin.utils import unquote
from django.http import HttpRequest, QueryDict
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _

from django_lockstep.admin.conflicts import CHOICE, THEIRS, Collected, Conflict
from django_lockstep.admin.history import Change, changes_since
from django_lockstep.admin.outdated import Outdated
from django_lockstep.admin.tokens import FIELD, Seen

__all__ = ["conflict_page", "gone_page", "outdated_page", "replayed", "replayed_rows", "respond"]

Inputs = list[tuple[str, str]]


def respond(request: HttpRequest, admin: ModelAdmin[Any], name: str, **context: Any) -> TemplateResponse:
    """Return an admin page with status 409, from the template of this name.

    A project's own ``admin/<app>/<model>/<name>.html`` or ``admin/<app>/<name>.html`` comes first, as with Django's.
    """
    opts = admin.opts
    request.current_app = admin.admin_site.name
    names = [f"admin/{opts.app_label}/{opts.model_name}/{name}.html", f"admin/{opts.app_label}/{name}.html"]
    popup = IS_POPUP_VAR in request.POST or IS_POPUP_VAR in request.GET
    everywhere = {**admin.admin_site.each_context(request), "opts": opts, "is_popup": popup, "media": admin.media}
    return TemplateResponse(request, [*names, f"admin/lockstep/{name}.html"], {**everywhere, **context}, status=409)


def conflict_page(
    request: HttpRequest, admin: ModelAdmin[Any], collected: Collected, *, inputs: Inputs, pk: object = None
) -> TemplateResponse:
    """Show each conflict with the three sides, and a form that sends again all that was typed.

    ``pk`` is the primary key of the page's own object, under which the admin also logs what was done to its inlines.
    """
    conflicts = collected.conflicts
    return respond(
        request,
        admin,
        "conflict",
        title=_("Not saved: changed meanwhile"),
        conflicts=[{"it": conflict, "changes": _changes(conflict, admin, pk)} for conflict in conflicts],
        inputs=inputs,
        files=[(name, file.name) for name, files in request.FILES.lists() for file in files],
        saved=collected.saved,
        can_save=any(conflict.now for conflict in conflicts) or pk is not None,
        back=request.get_full_path(),
    )


def replayed(data: QueryDict, conflicts: Iterable[Conflict]) -> Inputs:
    """Return all that was sent, but with the conflicting objects' tokens of now, and their decisions still to make."""
    left_out = {"csrfmiddlewaretoken"}
    for conflict in conflicts:
        left_out |= {conflict.html_name(FIELD), *(conflict.choice_name(row.name) for row in conflict.rows)}
    return [
        *((name, str(value)) for name, values in data.lists() if name not in left_out for value in values),
        *(pair for conflict in conflicts for pair in _tokens(conflict)),
    ]


def replayed_rows(data: QueryDict, collected: Collected, *, prefix: str = "form") -> Inputs:
    """Return what was sent of a list's conflicting rows alone, numbered anew: the others are done.

    The conflicts that can be saved again take the new numbers too.
    """
    rows = [conflict for conflict in collected.conflicts if conflict.now]
    moved = {f"{conflict.prefix}-": f"{prefix}-{number}-" for number, conflict in enumerate(rows)}
    inputs = [
        (name.replace(old, new, 1), str(value))
        for old, new in moved.items()
        for name, values in data.lists()
        if name.startswith(old)
        for value in values
    ]
    collected.conflicts = [
        replace(conflict, prefix=moved.get(f"{conflict.prefix}-", "x-").removesuffix("-"))
        for conflict in collected.conflicts
    ]
    management = [(f"{prefix}-{name}", str(len(rows))) for name in ("TOTAL_FORMS", "INITIAL_FORMS")]
    return [("_save", "1"), *management, *inputs, *((FIELD, row.now.sign()) for row in rows if row.now)]


def _tokens(conflict: Conflict) -> Inputs:
    if conflict.now:
        return [(conflict.html_name(FIELD), conflict.now.sign())]
    # There is nothing to merge with: the row stays deleted, as the page says.
    return [(conflict.html_name(FIELD), conflict.seen.sign()), (conflict.choice_name(FIELD), THEIRS)]


def _changes(conflict: Conflict, admin: ModelAdmin[Any], pk: object) -> list[Change]:
    if conflict.now is None and not conflict.gone:
        return []
    since = conflict.seen.made_at
    own = changes_since(conflict.model, conflict.pk, since)
    return own or (changes_since(admin.model, pk, since) if pk is not None and conflict.prefix else [])


def gone_page(request: HttpRequest, admin: ModelAdmin[Any], object_id: str) -> TemplateResponse:
    """Tell that the object is not found, with what was typed.

    That it was deleted, and by whom, is said where the form had shown it and its row is gone; of any other, Django's
    message tells that it does not exist.
    """
    seen = Seen.read(request.POST.get(FIELD, ""), admin.model)
    deleted = seen if seen and seen.is_gone() else None
    if deleted:
        list(messages.get_messages(request))  # Django's own words about it, of which ours say more
    return respond(
        request,
        admin,
        "gone",
        title=_("Not saved: deleted meanwhile") if deleted else _("Not saved"),
        kind=str(admin.opts.verbose_name),
        deleted=deleted,
        object_id=deleted.pk if deleted else unquote(object_id),
        typed=_typed(request, admin),
        changes=changes_since(admin.model, deleted.pk, deleted.made_at)[:1] if deleted else [],
    )


def _typed(request: HttpRequest, admin: ModelAdmin[Any]) -> Inputs:
    """Return what was typed into the form, by label."""
    form = admin.get_form(request, None)(request.POST)
    labels = {field.html_name: str(field.label) for field in form.visible_fields()}
    return [
        (labels.get(name, name), value)
        for name, values in request.POST.lists()
        for value in values
        if value and not name.startswith("_") and not _NOT_TYPED.search(name)
    ]


_NOT_TYPED = re.compile(rf"^csrfmiddlewaretoken$|^{CHOICE}|_FORMS$|-{FIELD}$")


def outdated_page(
    request: HttpRequest, admin: ModelAdmin[Any], objects: Iterable[Outdated], **context: Any
) -> TemplateResponse:
    """Tell which objects are not what they were when the person decided; nothing was done to any."""
    described = [_described(it, admin) for it in objects]
    return respond(request, admin, "outdated", objects=described, **context)


def _described(it: Outdated, admin: ModelAdmin[Any]) -> dict[str, Any]:
    gone = it.is_gone
    return {"it": it, "gone": gone, "changes": it.changes(admin.model) if it.now or gone else []}
