"""The mixin for a `ModelAdmin`: change pages check out what they show, and everything that writes obeys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import wraps
from typing import Any, ClassVar, Literal

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import quote, unquote
from django.db import models, router, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_lockstep.admin.addresses import addressed
from django_lockstep.editing.clock import time_of_day
from django_lockstep.editing.errors import EditingError, EditLocked, EditLockLost
from django_lockstep.editing.fences import fence
from django_lockstep.editing.forms import obeying_form, obeying_formset
from django_lockstep.editing.holds import holders_among
from django_lockstep.editing.models import Status
from django_lockstep.editing.operations import check_in, extend
from django_lockstep.editing.targets import key_text
from django_lockstep.editing.visits import Options, Visit, visit_of
from django_lockstep.editing.writers import TOKEN_FIELD, writing
from django_lockstep.errors import ConcurrencyError, DeadlockDetected
from django_lockstep.locking.durations import Duration

__all__ = ["EditLockAdminMixin"]


_REFUSALS = (EditLocked, EditLockLost, DeadlockDetected)
"""What a page answers with a message, and not with an error."""


class EditLockAdminMixin:
    """Edit locks for any model's admin; comes before ``ModelAdmin`` among the bases.

    Mode ``lock``: opening a change page checks out the record; who comes later sees it read-only, with who has it since
    when. A save needs the check-out; one that is refused keeps what was typed. Deleting, inlines, ``list_editable`` and
    actions are refused for what somebody else has. Mode ``presence``: tells who else is there, and keeps nobody out.
    Mode ``off``: as without the mixin.
    """

    edit_lock_mode: ClassVar[Literal["lock", "presence", "off"]] = "lock"
    edit_lock_related: ClassVar[Literal["references", "none"]] = "references"
    """Whether the records that it refers to are kept unchanged meanwhile."""
    edit_lock_depth: ClassVar[int | None] = 1
    """Over how many foreign keys."""
    edit_lock_shared_references: ClassVar[bool] = True
    """Whether others may need the same records unchanged at the same time."""
    edit_lock_ttl: ClassVar[Duration | None] = None
    """How long a check-out lasts without activity: a timedelta or seconds; None: ``LOCKSTEP_EDIT_TTL``."""
    edit_lock_free_actions: ClassVar[tuple[str, ...]] = ()
    """Names of actions that change nothing and may be run on what somebody else has."""

    model: type[models.Model]
    opts: Any
    admin_site: Any

    @property
    def media(self) -> forms.Media:
        """Add the script and the styles of the change page."""
        ours = forms.Media(css={"all": ["lockstep_editing/edit-lock.css"]}, js=["lockstep_editing/edit-lock.js"])
        media: forms.Media = super().media + ours  # type: ignore[misc]
        return media

    def get_urls(self) -> list[Any]:
        """Add what the page's script calls."""
        name = f"{self.opts.app_label}_{self.opts.model_name}_edit_lock"
        view = self.admin_site.admin_view(self.edit_lock_view)
        return [path("<path:object_id>/edit-lock/", view, name=name), *super().get_urls()]  # type: ignore[misc]

    # The change page.

    def changeform_view(
        self, request: HttpRequest, object_id: str | None = None, form_url: str = "", extra_context: Any = None
    ) -> Any:
        """Show or save the form, under a check-out."""
        instance = object_id and self.edit_lock_mode != "off" and addressed(self, request, object_id)
        if not instance or not self.has_change_permission(request, instance):
            with writing(request.user):
                return super().changeform_view(request, object_id, form_url, extra_context)  # type: ignore[misc]
        if "prefetch" in request.headers.get("Sec-Purpose", ""):
            return HttpResponse(status=503)  # the browser asks again when the person goes there
        visit = Visit(request, instance, options=Options.of(self), url=self._address("edit_lock", instance))
        request.edit_visit = visit  # type: ignore[attr-defined]
        if "_take_over" in request.POST and not visit.take_over():
            return HttpResponseRedirect(request.get_full_path())
        answer = super().changeform_view  # type: ignore[misc]
        if request.method == "POST":
            return self._saved(visit, lambda: answer(request, object_id, form_url, extra_context))
        visit.open()
        return visit.shown(answer(request, object_id, form_url, extra_context))

    def _address(self, page: str, instance: Any) -> str:
        """Return the address of one of the record's pages, by its primary key."""
        name = f"admin:{self.opts.app_label}_{self.opts.model_name}_{page}"
        return reverse(name, args=[quote(instance.pk)], current_app=self.admin_site.name)

    def _saved(self, visit: Visit, answer: Callable[[], Any]) -> Any:
        """Save in one transaction with the questions whether it may be saved and the check-in."""
        using = router.db_for_write(self.model)
        with writing(visit.request.user, token=visit.writes_as):
            try:
                with transaction.atomic(using=using):
                    response = answer()
                    if not isinstance(response, TemplateResponse) or _closes_popup(response):
                        visit.close()
                        return response
            except _REFUSALS as error:
                # Met by something that is saved along. The form did not know, and is shown again with what was typed.
                visit.refuse(error)
                with transaction.atomic(using=using):
                    response = answer()
        return visit.shown(visit.refused(response))

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse while somebody else has the record, so that the page is read-only."""
        allowed: bool = super().has_change_permission(request, obj)  # type: ignore[misc]
        return allowed and not (obj is not None and _read_only(request))

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse while somebody else has the record."""
        allowed: bool = super().has_delete_permission(request, obj)  # type: ignore[misc]
        return allowed and not (obj is not None and _read_only(request))

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        """Let the form ask whether it may be saved."""
        form = super().get_form(request, obj, change=change, **kwargs)  # type: ignore[misc]
        return form if self.edit_lock_mode == "off" else obeying_form(form, visit_of(request))

    def get_formsets_with_inlines(self, request: HttpRequest, obj: Any = None) -> Iterator[Any]:
        """Let the inlines ask whether somebody else has their records."""
        for formset, inline in super().get_formsets_with_inlines(request, obj):  # type: ignore[misc]
            yield (formset if self.edit_lock_mode == "off" else obeying_formset(formset)), inline

    # What the page's script calls.

    def edit_lock_view(self, request: HttpRequest, object_id: str) -> JsonResponse:
        """Extend a check-out while the person is active, or give it back when the page is left."""
        instance = self.get_object(request, unquote(object_id))  # type: ignore[attr-defined]
        operation = {"extend": extend, "check-in": check_in}.get(request.POST.get("action", ""))
        if instance is None or operation is None or request.method != "POST":
            return JsonResponse({"detail": "POST action=extend or action=check-in for an existing record"}, status=404)
        options: dict[str, Any] = {"ttl": self.edit_lock_ttl} if operation is extend else {}
        try:
            result = operation(instance, request.user, token=request.POST.get(TOKEN_FIELD, ""), **options)
        except EditingError as error:
            return JsonResponse({"detail": str(error)}, status=403)
        except ConcurrencyError as error:
            return JsonResponse({"detail": str(error)}, status=409)
        return JsonResponse(result.as_json())

    # Deleting, lists, actions.

    def delete_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> Any:
        """Delete, unless somebody else has the record."""
        instance = addressed(self, request, object_id)
        answer = super().delete_view  # type: ignore[misc]
        if instance is None or self.edit_lock_mode == "off":
            return answer(request, object_id, extra_context)
        return self._obeying(
            request,
            lambda: answer(request, object_id, extra_context),
            guard=lambda: fence(type(instance), [instance.pk]),
            back=self._address("change", instance),
        )

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        """Show the list; what it writes, by ``list_editable`` or an action, is written in one transaction."""
        answer = super().changelist_view  # type: ignore[misc]
        if request.method != "POST" or self.edit_lock_mode == "off":
            return answer(request, extra_context)
        return self._obeying(request, lambda: answer(request, extra_context), back=request.get_full_path())

    def _obeying(
        self, request: HttpRequest, answer: Callable[[], Any], *, back: str, guard: Callable[[], None] | None = None
    ) -> Any:
        try:
            with transaction.atomic(using=router.db_for_write(self.model)), writing(request.user):
                if guard:
                    guard()
                return answer()
        except _REFUSALS as error:
            self.message_user(request, str(error), messages.ERROR)  # type: ignore[attr-defined]
            return HttpResponseRedirect(back)

    def get_changelist_form(self, request: HttpRequest, **kwargs: Any) -> Any:
        """Let each row of ``list_editable`` ask whether somebody else has it."""
        form = super().get_changelist_form(request, **kwargs)  # type: ignore[misc]
        return form if self.edit_lock_mode == "off" else obeying_form(form, None)

    def get_actions(self, request: HttpRequest, action_location: Any = None) -> dict[str, Any]:
        """Let each action ask first, unless it is among ``edit_lock_free_actions``."""
        where = {} if action_location is None else {"action_location": action_location}  # new in Django 6.1
        actions: dict[str, Any] = super().get_actions(request, **where)  # type: ignore[misc]
        if self.edit_lock_mode == "off":
            return actions
        free = self.edit_lock_free_actions
        return {name: action if name in free else _asking_first(action) for name, action in actions.items()}

    def get_list_display(self, request: HttpRequest) -> tuple[Any, ...]:
        """Add who has each record."""
        columns = tuple(super().get_list_display(request))  # type: ignore[misc]
        return columns if self.edit_lock_mode == "off" else (*columns, "edit_lock_holder")

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """Find out, in one query, who has the records of the page."""
        changelist = super().get_changelist_instance(request)  # type: ignore[misc]
        if self.edit_lock_mode != "off":
            found = holders_among(self.model, [row.pk for row in changelist.result_list])
            for row in changelist.result_list:
                row._edit_lock = found.get(key_text(self.model, row.pk))
        return changelist

    @admin.display(description=gettext_lazy("checked out by"))
    def edit_lock_holder(self, obj: Any) -> str:
        """Show a lock and the editor; of somebody who is only there, the name alone."""
        lock = getattr(obj, "_edit_lock", None)
        if lock is None:
            return ""
        if lock.status == Status.NORMAL:
            return _("%(editor)s (is here)") % {"editor": lock.editor.get_username()}
        title = _("since %(since)s, by %(cause)s") % {"since": time_of_day(lock.since), "cause": lock.locked_by}
        return format_html(
            '<span class="edit-lock-holder" title="{}">'
            '<span class="edit-lock-icon" aria-hidden="true"></span> {}</span>',
            title,
            lock.editor.get_username(),
        )


def _read_only(request: HttpRequest) -> bool:
    visit = visit_of(request)
    return visit is not None and visit.read_only


def _closes_popup(response: TemplateResponse) -> bool:
    """Whether it is the answer to a save in a popup, which is a page as a form with errors is."""
    return "popup_response_data" in (response.context_data or {})


def _asking_first(action: Any) -> Any:
    """Return the action, which is a tuple before Django 6.1 and an object since, with its function behind a fence."""
    if isinstance(action, tuple):
        return (_asking(action[0]), *action[1:])
    return replace(action, func=_asking(action.func))


def _asking(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the action behind a fence around what was selected."""

    @wraps(function)
    def asking(modeladmin: Any, request: HttpRequest, queryset: Any) -> Any:
        fence(queryset.model, list(queryset.values_list("pk", flat=True)))
        return function(modeladmin, request, queryset)

    return asking
