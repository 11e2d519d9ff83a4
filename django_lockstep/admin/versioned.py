"""Admin classes for versioned models: no save overwrites another user's change, and typed input is never lost."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.admin.options import InlineModelAdmin
from django.core.checks import CheckMessage, Error
from django.core.exceptions import ImproperlyConfigured, ObjectDoesNotExist
from django.db.models import Model
from django.http import HttpRequest, HttpResponse

from django_lockstep.admin.conflicts import collect, collected_of
from django_lockstep.admin.deletion import DeletionMixin
from django_lockstep.admin.forms import seen_form
from django_lockstep.admin.lists import ListMixin
from django_lockstep.admin.pages import conflict_page, gone_page, replay_inputs
from django_lockstep.admin.tokens import FIELD, version_name
from django_lockstep.checks import missing_app
from django_lockstep.errors import SerializationFailure, StaleVersionError
from django_lockstep.locking.fields import VersionField

__all__ = ["VersionedInlineMixin", "VersionedModelAdmin", "VersionedStackedInline", "VersionedTabularInline"]

OVERTAKEN = (StaleVersionError, SerializationFailure, ObjectDoesNotExist)
"""Errors of a write that met a concurrent change."""


class ChangeFormMixin(admin.ModelAdmin):  # type: ignore[type-arg]
    """The change form and its inlines: compared with the shown versions when they are saved."""

    def get_form(self, request: HttpRequest, obj: Model | None = None, change: bool = False, **kwargs: Any) -> Any:
        """Return Django's form; for an existing object with the token, compared when it is saved."""
        if obj is not None:
            # Django drops declared fields that are read-only from the class's own form, but not from a given one.
            shown = () if "form" in kwargs else self.get_readonly_fields(request, obj)
            kwargs["form"] = seen_form(kwargs.get("form", self.form), collected_of(request), without=shown)
        return super().get_form(request, obj, change=change, **kwargs)

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> Any:
        return _with(super().get_readonly_fields(request, obj), version_name(self.model))

    def get_fieldsets(self, request: HttpRequest, obj: Model | None = None) -> Any:
        """Return Django's fieldsets with the token as a hidden field of the last one."""
        fieldsets = super().get_fieldsets(request, obj)
        if obj is None:
            return _without(fieldsets, FIELD, version_name(self.model))
        return _with_token(fieldsets, visible=self.has_change_permission(request, obj))

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Model | None:
        """Return Django's object, and record its primary key or that it is missing."""
        instance = super().get_object(request, object_id, from_field)
        collected = collected_of(request)
        if collected and collected.pk is None:
            collected.pk, collected.missing = getattr(instance, "pk", None), instance is None
        return instance

    def changeform_view(
        self, request: HttpRequest, object_id: str | None = None, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """Save as Django does; after a concurrent change answer 409 with the conflict page, and save nothing.

        A change between the comparison and the write makes the write itself fail and roll back; the second attempt's
        comparison then finds it.
        """
        if request.method != "POST" or object_id is None or _is_copy(request):
            return super().changeform_view(request, object_id, form_url, extra_context)
        try:
            return self._attempt(request, object_id, form_url, extra_context)
        except OVERTAKEN:
            return self._attempt(request, object_id, form_url, extra_context)

    def _attempt(self, request: HttpRequest, object_id: str, form_url: str, extra_context: Any) -> HttpResponse:
        collected = collect(request)
        try:
            response: HttpResponse = super().changeform_view(request, object_id, form_url, extra_context)
        except OVERTAKEN:
            # A failure without a collected conflict means that the comparison was too early: the caller tries again.
            if not collected.conflicts:
                raise
        if collected.conflicts:
            inputs = replay_inputs(request.POST, collected.conflicts)
            return conflict_page(request, self, collected, inputs=inputs, pk=collected.pk)
        return gone_page(request, self, object_id) if collected.missing else response


class VersionedModelAdmin(ListMixin, DeletionMixin, ChangeFormMixin):
    """The admin of a `VersionedModel`: every write is based on the current version.

    Forms, rows of ``list_editable``, actions and deletions are compared with the version that was shown, before and in
    the write. If that version is outdated, the response is a page with status 409 that shows base, theirs and mine,
    merges changes that do not overlap, and keeps typed input. Put it before other admin classes among the bases.

    Tokens are signed with ``SECRET_KEY``. Many-to-many relations have no version and are not compared.
    """

    class Media:
        js = ("lockstep/seen.js",)

    def check(self, **kwargs: object) -> list[CheckMessage]:
        """Add checks that the app with the templates and the script is installed, and that the model has a version."""
        name = f"{type(self).__module__}.{type(self).__qualname__}"
        messages: list[CheckMessage] = super().check(**kwargs)
        if not any(isinstance(field, VersionField) for field in self.model._meta.concrete_fields):
            text = f"{name} compares versions, and {self.model._meta.label} has none."
            messages += [Error(text, hint="Derive the model from VersionedModel.", obj=type(self), id="lockstep.E032")]
        return [*messages, *missing_app("django_lockstep", needed_by=name, check_id="lockstep.E030", obj=type(self))]


class VersionedInlineMixin(InlineModelAdmin):  # type: ignore[type-arg]
    """The same for inlines: rows of a `VersionedModel` in the form of a `VersionedModelAdmin`."""

    def get_formset(self, request: HttpRequest, obj: Model | None = None, **kwargs: Any) -> Any:
        """Return Django's formset with forms that have tokens.

        Raises ``ImproperlyConfigured`` if rows are saved in an admin that would not compare them.
        """
        if request.method == "POST" and obj is not None and collected_of(request) is None and not _is_copy(request):
            raise ImproperlyConfigured(f"{type(self).__name__} must be an inline of a VersionedModelAdmin")
        kwargs["form"] = seen_form(kwargs.get("form", self.form), collected_of(request), is_row=True)
        return super().get_formset(request, obj, **kwargs)

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> Any:
        return _with(super().get_readonly_fields(request, obj), version_name(self.model))

    def get_fieldsets(self, request: HttpRequest, obj: Model | None = None) -> Any:
        """Return Django's fieldsets with the token as a hidden field of the last one."""
        return _with_token(super().get_fieldsets(request, obj), visible=self._may_change(request, obj))

    def _may_change(self, request: HttpRequest, obj: Model | None) -> bool:
        """Whether the rows are shown as forms; Django shows them as text if the parent is view-only."""
        parent: Any = self.admin_site._registry.get(self.parent_model)
        may = parent is None or obj is None or parent.has_change_permission(request, obj)
        return bool(may and self.has_change_permission(request, obj))


class VersionedTabularInline(VersionedInlineMixin, admin.TabularInline):  # type: ignore[type-arg]
    """A tabular inline of versioned rows."""


class VersionedStackedInline(VersionedInlineMixin, admin.StackedInline):  # type: ignore[type-arg]
    """A stacked inline of versioned rows."""


def _is_copy(request: HttpRequest) -> bool:
    """Whether the input is to be saved as a new object."""
    return "_saveasnew" in request.POST


def _with(names: Any, name: str) -> tuple[Any, ...]:
    return tuple(names) if name in names else (*names, name)


def _without(fieldsets: Any, *left_out: str) -> list[tuple[Any, dict[str, Any]]]:
    def kept(fields: Any) -> list[Any]:
        lines = (tuple(kept(line)) if isinstance(line, list | tuple) else line for line in fields)
        return [line for line in lines if line not in ((), *left_out)]

    return [(name, {**options, "fields": kept(options["fields"])}) for name, options in fieldsets]


def _with_token(fieldsets: object, *, visible: bool) -> list[tuple[Any, dict[str, Any]]]:
    """Return the fieldsets with the token's field in the last one only, or not at all."""
    result = _without(fieldsets, FIELD)
    if visible and result:
        result[-1][1]["fields"].append(FIELD)
    return result
