"""The pages shown for a conflict."""

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
from django_lockstep.admin.history import RecordedChange, changes_since
from django_lockstep.admin.outdated import Outdated
from django_lockstep.admin.tokens import FIELD, Seen

Inputs = list[tuple[str, str]]


def respond(request: HttpRequest, admin: ModelAdmin[Any], name: str, **context: object) -> TemplateResponse:
    """Return an admin page with status 409, from the template of this name.

    A project's own ``admin/<app>/<model>/<name>.html`` or ``admin/<app>/<name>.html`` takes precedence, as with
    Django's.
    """
    opts = admin.opts
    request.current_app = admin.admin_site.name
    names = [f"admin/{opts.app_label}/{opts.model_name}/{name}.html", f"admin/{opts.app_label}/{name}.html"]
    popup = IS_POPUP_VAR in request.POST or IS_POPUP_VAR in request.GET
    common = {**admin.admin_site.each_context(request), "opts": opts, "is_popup": popup, "media": admin.media}
    return TemplateResponse(request, [*names, f"admin/lockstep/{name}.html"], {**common, **context}, status=409)


def conflict_page(
    request: HttpRequest, admin: ModelAdmin[Any], collected: Collected, *, inputs: Inputs, pk: object = None
) -> TemplateResponse:
    """Show each conflict with its three sides, and a form that submits all input again.

    ``pk`` is the primary key of the page's own object, under which the admin also logs changes of its inlines.
    """
    conflicts = collected.conflicts
    return respond(
        request,
        admin,
        "conflict",
        title=_("Not saved: it was changed in the meantime"),
        conflicts=[{"it": conflict, "changes": _changes(conflict, admin, pk)} for conflict in conflicts],
        inputs=inputs,
        files=[(name, file.name) for name, files in request.FILES.lists() for file in files],
        saved=collected.saved,
        can_save=any(conflict.now for conflict in conflicts) or pk is not None,
        back=request.get_full_path(),
    )


def replay_inputs(data: QueryDict, conflicts: Iterable[Conflict]) -> Inputs:
    """Return all submitted inputs, with current tokens for the conflicting objects and without their decisions."""
    # The page has a token of its own.
    left_out = {"csrfmiddlewaretoken"}
    for conflict in conflicts:
        left_out |= {conflict.html_name(FIELD), *(conflict.choice_name(row.name) for row in conflict.rows)}
    return [
        *((name, str(value)) for name, values in data.lists() if name not in left_out for value in values),
        *(pair for conflict in conflicts for pair in _tokens(conflict)),
    ]


def replay_rows(data: QueryDict, collected: Collected) -> Inputs:
    """Return the inputs of a list's conflicting rows only, renumbered: the others are saved.

    Conflicts that can be saved again get the new numbers too.
    """
    rows = [conflict for conflict in collected.conflicts if conflict.now]
    moved = {f"{conflict.prefix}-": f"form-{number}-" for number, conflict in enumerate(rows)}
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
    management = [(f"form-{name}", str(len(rows))) for name in ("TOTAL_FORMS", "INITIAL_FORMS")]
    return [("_save", "1"), *management, *inputs, *((FIELD, row.now.sign()) for row in rows if row.now)]


def _tokens(conflict: Conflict) -> Inputs:
    if conflict.now:
        return [(conflict.html_name(FIELD), conflict.now.sign())]
    # A deleted row cannot be merged: it stays deleted, as the page says.
    return [(conflict.html_name(FIELD), conflict.seen.sign()), (conflict.choice_name(FIELD), THEIRS)]


def _changes(conflict: Conflict, admin: ModelAdmin[Any], pk: object) -> list[RecordedChange]:
    if conflict.now is None and not conflict.gone:
        return []
    since = conflict.seen.made_at
    own = changes_since(conflict.model, conflict.pk, since)
    return own or (changes_since(admin.model, pk, since) if pk is not None and conflict.prefix else [])


def gone_page(request: HttpRequest, admin: ModelAdmin[Any], object_id: str) -> TemplateResponse:
    """Show that the object is not found, with the typed values.

    The page says that it was deleted, and by which user, if the form had shown it and its row is missing; otherwise
    Django's message says that it does not exist.
    """
    seen = Seen.read(request.POST.get(FIELD, ""), admin.model)
    deleted = seen if seen and seen.is_gone() else None
    if deleted:
        list(messages.get_messages(request))  # drops Django's message: ours says more
    return respond(
        request,
        admin,
        "gone",
        title=_("Not saved: it was deleted in the meantime") if deleted else _("Not saved"),
        kind=str(admin.opts.verbose_name),
        deleted=deleted,
        object_id=deleted.pk if deleted else unquote(object_id),
        typed=_typed(request, admin),
        changes=changes_since(admin.model, deleted.pk, deleted.made_at)[:1] if deleted else [],
    )


def _typed(request: HttpRequest, admin: ModelAdmin[Any]) -> Inputs:
    """Return the typed values with the labels of their fields."""
    form = admin.get_form(request, None)(request.POST)
    # Without the object there is no form that knows what was shown: labels come from an empty one.
    labels = {field.html_name: str(field.label) for field in form.visible_fields()}
    return [
        (labels.get(name, name), value)
        for name, values in request.POST.lists()
        for value in values
        if value and not name.startswith("_") and not _NOT_TYPED.search(name)
    ]


_NOT_TYPED = re.compile(rf"^csrfmiddlewaretoken$|^{CHOICE}|_FORMS$|-{FIELD}$")


def outdated_page(
    request: HttpRequest, admin: ModelAdmin[Any], objects: Iterable[Outdated], **context: object
) -> TemplateResponse:
    """List the objects that changed since they were selected; no changes were made."""
    described = [
        {"it": row, "gone": row.is_gone, "changes": row.changes(admin.model) if row.now or row.is_gone else []}
        for row in objects
    ]
    return respond(request, admin, "outdated", objects=described, **context)
