"""The mixin for a `ModelAdmin`: change pages check out their record, and every write checks edit locks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import wraps
from typing import Any, ClassVar, Literal

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import ValidationError
from django.db import models, router, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_lockstep.admin.addresses import find_by_url
from django_lockstep.editing.clock import time_with_day
from django_lockstep.editing.errors import EditingError, EditLocked, EditLockLost
from django_lockstep.editing.holds import holders_among
from django_lockstep.editing.models import Status
from django_lockstep.editing.operations import check_in, extend
from django_lockstep.editing.sessions import EditSession, edit_session_of
from django_lockstep.editing.targets import key_text
from django_lockstep.editing.write_checks import require_editable, require_instance_editable
from django_lockstep.editing.writers import TOKEN_FIELD, writing
from django_lockstep.errors import ConcurrencyError, DeadlockDetected, raise_if_committed
from django_lockstep.locking.durations import Duration

_REFUSALS = (EditLocked, EditLockLost, DeadlockDetected)
"""Errors that a page shows as a message."""


# A ModelAdmin itself: Python then calls it before Django's class in any order of the bases, or refuses the order.
class EditLockAdminMixin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Edit locks for any model's admin; comes before other admin classes among the bases.

    Mode ``lock``: opening a change page checks out the record; other users see it read-only, with the holder and the
    time. A save needs the check-out; a refused save keeps the typed values. Deleting, inlines, ``list_editable`` and
    actions are refused for records that another user has checked out. Mode ``presence``: shows the other users on the
    page and locks nothing.
    """

    edit_lock_mode: ClassVar[Literal["lock", "presence"]] = "lock"
    edit_lock_related: ClassVar[Literal["references", "none"]] = "references"
    """Whether the records that it refers to are locked against changes."""
    edit_lock_depth: ClassVar[int | None] = 1
    """The number of foreign keys to follow; None: all."""
    edit_lock_shared_references: ClassVar[bool] = True
    """Whether several check-outs may lock the same referenced records."""
    edit_lock_ttl: ClassVar[Duration | None] = None
    """How long a check-out lasts without activity: a timedelta or seconds; None: ``LOCKSTEP_EDIT_TTL``."""
    edit_lock_free_actions: ClassVar[tuple[str, ...]] = ()
    """Names of read-only actions, which may also be run on checked-out records."""

    @property
    def media(self) -> forms.Media:
        own_media = forms.Media(css={"all": ["lockstep_editing/edit-lock.css"]}, js=["lockstep_editing/edit-lock.js"])
        media: forms.Media = super().media + own_media
        return media

    def get_urls(self) -> list[Any]:
        name = f"{self.opts.app_label}_{self.opts.model_name}_edit_lock"
        view = self.admin_site.admin_view(self.edit_lock_view)
        return [path("<path:object_id>/edit-lock/", view, name=name), *super().get_urls()]

    # The change page.

    def changeform_view(
        self, request: HttpRequest, object_id: str | None = None, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """Check out the record, then show or save the form."""
        instance = object_id and find_by_url(self, request, object_id)
        if not instance or not self.has_change_permission(request, instance):
            with writing(request.user):
                return super().changeform_view(request, object_id, form_url, extra_context)
        if "prefetch" in request.headers.get("Sec-Purpose", ""):
            # A prefetch must not check out; the browser requests the page again when the user opens it.
            return HttpResponse(status=503)
        session = EditSession(request, instance, admin=self, url=self._url("edit_lock", instance))
        request.edit_session = session  # type: ignore[attr-defined]
        if "_take_over" in request.POST and not session.take_over():
            return HttpResponseRedirect(request.get_full_path())
        view = super().changeform_view
        if request.method == "POST":
            return self._save(session, lambda: view(request, object_id, form_url, extra_context))
        session.open()
        return session.add_banner(view(request, object_id, form_url, extra_context))

    def _url(self, page: str, instance: models.Model) -> str:
        """Return the URL of one of the record's pages, by its primary key."""
        name = f"admin:{self.opts.app_label}_{self.opts.model_name}_{page}"
        return reverse(name, args=[quote(instance.pk)], current_app=self.admin_site.name)

    def _save(self, session: EditSession, answer: Callable[[], HttpResponse]) -> HttpResponse:
        """Save in one transaction with the lock checks and the check-in."""
        using = router.db_for_write(self.model)
        with writing(session.request.user, token=session.writes_as):
            try:
                with transaction.atomic(using=using):
                    response = answer()
                    # A popup that is done answers with a page, like a form with errors.
                    page = response.context_data or {} if isinstance(response, TemplateResponse) else None
                    if page is None or "popup_response_data" in page:
                        # In the transaction of the save: the record becomes free when the new values are visible.
                        session.close()
                        return response
            except _REFUSALS as error:
                raise_if_committed(error)
                # The save of a related object was refused, which the form could not check: show it again, as typed.
                session.refusal = error
                with transaction.atomic(using=using):
                    response = answer()
        return session.add_banner(session.finish_refusal(response))

    def has_change_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        """Refuse while another user has the record, so that the page is read-only."""
        allowed: bool = super().has_change_permission(request, obj)
        return allowed and not (obj is not None and _read_only(request))

    def has_delete_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        allowed: bool = super().has_delete_permission(request, obj)
        return allowed and not (obj is not None and _read_only(request))

    def get_form(
        self, request: HttpRequest, obj: models.Model | None = None, change: bool = False, **kwargs: object
    ) -> Any:
        """Let the form check the edit lock."""
        form = super().get_form(request, obj, change=change, **kwargs)
        return _lock_checked_form(form, edit_session_of(request))

    def get_formsets_with_inlines(self, request: HttpRequest, obj: models.Model | None = None) -> Iterator[Any]:
        """Let the inlines check the edit locks of their records."""
        for formset, inline in super().get_formsets_with_inlines(request, obj):
            yield _lock_checked_formset(formset), inline

    # The endpoint of the page's script.

    def edit_lock_view(self, request: HttpRequest, object_id: str) -> JsonResponse:
        """Extend a check-out while the user is active, or check in when the page is left."""
        instance = self.get_object(request, unquote(object_id))
        operation = {"extend": extend, "check-in": check_in}.get(request.POST.get("action", ""))
        if instance is None or operation is None or request.method != "POST":
            detail = "Use POST with action=extend or action=check-in for an existing record"
            return JsonResponse({"detail": detail}, status=404)
        options: dict[str, Any] = {"ttl": self.edit_lock_ttl} if operation is extend else {}
        try:
            result = operation(instance, request.user, token=request.POST.get(TOKEN_FIELD, ""), **options)
        except EditingError as error:
            return JsonResponse({"detail": str(error)}, status=403)
        except ConcurrencyError as error:
            raise_if_committed(error)
            return JsonResponse({"detail": str(error)}, status=409)
        return JsonResponse(result.as_json())

    # Deleting, lists, actions.

    def delete_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        instance = find_by_url(self, request, object_id)
        view = super().delete_view
        if instance is None:
            return view(request, object_id, extra_context)

        def answer() -> HttpResponse:
            require_editable(type(instance), [instance.pk])
            return view(request, object_id, extra_context)

        return self._run_checked(request, answer, back=self._url("change", instance))

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Show the list; run ``list_editable`` saves and actions in one transaction."""
        view = super().changelist_view
        if request.method != "POST":
            return view(request, extra_context)
        return self._run_checked(request, lambda: view(request, extra_context), back=request.get_full_path())

    def _run_checked(self, request: HttpRequest, answer: Callable[[], HttpResponse], *, back: str) -> HttpResponse:
        try:
            with transaction.atomic(using=router.db_for_write(self.model)), writing(request.user):
                return answer()
        except _REFUSALS as error:
            raise_if_committed(error)
            self.message_user(request, str(error), messages.ERROR)
            return HttpResponseRedirect(back)

    def get_changelist_form(self, request: HttpRequest, **kwargs: object) -> Any:
        """Let each row of ``list_editable`` check the edit locks."""
        return _lock_checked_form(super().get_changelist_form(request, **kwargs), None)

    def get_actions(self, request: HttpRequest, action_location: object = None) -> dict[str, Any]:
        """Check the selected records before each action, except ``edit_lock_free_actions``."""
        where = {} if action_location is None else {"action_location": action_location}  # new in Django 6.1
        actions: dict[str, Any] = super().get_actions(request, **where)
        free = self.edit_lock_free_actions
        return {name: action if name in free else _with_check(action) for name, action in actions.items()}

    def get_list_display(self, request: HttpRequest) -> tuple[Any, ...]:
        return (*super().get_list_display(request), "edit_lock_holder")

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """Read the locks of the page's records in one query."""
        changelist = super().get_changelist_instance(request)
        # One query for the page instead of one for each row.
        locks = holders_among(self.model, [row.pk for row in changelist.result_list])
        for row in changelist.result_list:
            row._edit_lock = locks.get(key_text(self.model, row.pk))
        return changelist

    @admin.display(description=gettext_lazy("checked out by"))
    def edit_lock_holder(self, obj: models.Model) -> str:
        """Show a lock and the holder; for a presence, the name alone."""
        lock = getattr(obj, "_edit_lock", None)
        if lock is None:
            return ""
        if lock.status == Status.NORMAL:
            return _("%(editor)s (viewing)") % {"editor": lock.check_out.editor.get_username()}
        title = _("since %(since)s, because of %(cause)s") % {
            "since": time_with_day(lock.check_out.since),
            "cause": lock.locked_by,
        }
        return format_html(
            '<span class="edit-lock-holder" title="{}">'
            '<span class="edit-lock-icon" aria-hidden="true"></span> {}</span>',
            title,
            lock.check_out.editor.get_username(),
        )


def _read_only(request: HttpRequest) -> bool:
    session = edit_session_of(request)
    return session is not None and session.read_only


def _with_check(action: Any) -> Any:
    """Return the action (a tuple before Django 6.1, an object since) with a write check of the selected records."""
    function = action[0] if isinstance(action, tuple) else action.func

    @wraps(function)
    def checked(modeladmin: object, request: HttpRequest, queryset: models.QuerySet[Any]) -> Any:
        require_editable(queryset.model, list(queryset.values_list("pk", flat=True)))
        return function(modeladmin, request, queryset)

    return (checked, *action[1:]) if isinstance(action, tuple) else replace(action, func=checked)


def _lock_checked_form(form: Any, session: EditSession | None) -> Any:
    """Return the form class with the check in ``clean()``, which must run in a transaction.

    The session's record needs its check-out; any other record must not be checked out by another user.
    """

    class LockCheckedForm(form):  # type: ignore[misc]
        def clean(self) -> Any:
            cleaned = super().clean()
            if session is not None and session.is_of(self.instance):
                session.require_check_out()
            elif self.has_changed():
                _require_editable(self.instance)
            return cleaned

    LockCheckedForm.base_fields = form.base_fields  # keeps changes made to them since, instead of the model's fields
    LockCheckedForm.__name__, LockCheckedForm.__qualname__ = form.__name__, form.__qualname__
    return LockCheckedForm


def _lock_checked_formset(formset: Any) -> Any:
    """Return the formset class with the check for each record that would be changed or deleted."""

    class LockCheckedFormSet(formset):  # type: ignore[misc]
        def clean(self) -> None:
            super().clean()
            for form in self.forms:
                if form.has_changed():
                    _require_editable(form.instance)

    return LockCheckedFormSet


def _require_editable(instance: Any) -> None:
    try:
        require_instance_editable(instance)
    except (EditLocked, EditLockLost) as error:
        raise ValidationError(str(error), code="edit_locked") from error
