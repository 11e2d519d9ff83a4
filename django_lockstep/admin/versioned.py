"""Admin classes for versioned models: nothing is saved over what somebody else saved, and nothing typed is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.admin.options import InlineModelAdmin
from django.core.checks import CheckMessage
from django.core.exceptions import ImproperlyConfigured, ObjectDoesNotExist
from django.http import HttpRequest, HttpResponse

from django_lockstep.admin.conflicts import collect, collected_of
from django_lockstep.admin.deletion import DeletionMixin
from django_lockstep.admin.forms import seen_form
from django_lockstep.admin.lists import ListMixin
from django_lockstep.admin.pages import conflict_page, gone_page, replayed
from django_lockstep.admin.tokens import FIELD, version_name
from django_lockstep.checks import missing_app
from django_lockstep.errors import SerializationFailure, StaleVersionError

__all__ = ["VersionedInlineMixin", "VersionedModelAdmin", "VersionedStackedInline", "VersionedTabularInline"]

OVERTAKEN = (StaleVersionError, SerializationFailure, ObjectDoesNotExist)
"""What a write is met with when somebody was faster."""

if TYPE_CHECKING:
    _Base = admin.ModelAdmin[Any]
    _Inline = InlineModelAdmin[Any, Any]
else:
    _Base = _Inline = object


class ChangeFormMixin(_Base):
    """The change form and its inlines: compared with what was shown when they are saved."""

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        """Return Django's form; of an object that is there, with the token, and compared while it is being saved."""
        if obj is not None:
            # Of the class's own form Django leaves out what it declares and the page only shows; of one given, nothing.
            shown = () if "form" in kwargs else self.get_readonly_fields(request, obj)
            kwargs["form"] = seen_form(kwargs.get("form", self.form), collected_of(request), without=shown)
        return super().get_form(request, obj, change=change, **kwargs)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return Django's, and the version."""
        return _with(super().get_readonly_fields(request, obj), version_name(self.model))

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return Django's with the token, which is a hidden field of the last one."""
        fieldsets = super().get_fieldsets(request, obj)
        if obj is None:
            return _without(fieldsets, FIELD, version_name(self.model))
        return _with_token(fieldsets, wanted=self.has_change_permission(request, obj))

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """Return Django's, and note its primary key, or that there is none."""
        found = super().get_object(request, object_id, from_field)
        collected = collected_of(request)
        if collected and collected.pk is None:
            collected.pk, collected.missing = getattr(found, "pk", None), found is None
        return found

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> Any:
        """Do as Django's; where somebody was faster, answer with the conflict page, 409, and nothing is saved.

        A change between the comparison and the write is met by the write itself, which rolls everything back: the
        same comparison, made again, then finds it.
        """
        if request.method != "POST" or object_id is None or _is_copy(request):
            return super().changeform_view(request, object_id, form_url, extra_context)
        try:
            return self._attempt(request, object_id, form_url, extra_context)
        except OVERTAKEN:
            return self._attempt(request, object_id, form_url, extra_context)

    def _attempt(
        self, request: HttpRequest, object_id: str, form_url: str, extra_context: dict[str, Any] | None
    ) -> HttpResponse:
        collected = collect(request)
        try:
            response: HttpResponse = super().changeform_view(request, object_id, form_url, extra_context)
        except OVERTAKEN:
            if not collected.conflicts:
                raise
        if collected.conflicts:
            inputs = replayed(request.POST, collected.conflicts)
            return conflict_page(request, self, collected, inputs=inputs, pk=collected.pk)
        return gone_page(request, self, object_id) if collected.missing else response


class VersionedModelAdmin(ListMixin, DeletionMixin, ChangeFormMixin, admin.ModelAdmin):  # type: ignore[type-arg]
    """The admin of a `VersionedModel`: whatever is written was decided on what is there.

    Forms, rows of ``list_editable``, actions and deletions are compared with the version that was shown, before and in
    the write. Where that is outdated the answer is a page, 409, that shows base, theirs and mine, merges what does not
    overlap, and keeps what was typed. Put it before other admin classes that the class inherits from.

    Tokens are signed with ``SECRET_KEY``. Relations of the many-to-many kind have no version and are not compared.
    """

    class Media:
        js = ("lockstep/seen.js",)

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        """Add to Django's own checks that the templates and the script are there."""
        name = f"{type(self).__module__}.{type(self).__qualname__}"
        found: list[CheckMessage] = super().check(**kwargs)
        return [*found, *missing_app("django_lockstep", needed_by=name, check_id="lockstep.E030", obj=type(self))]


class VersionedInlineMixin(_Inline):
    """The same for inlines: for the rows of a `VersionedModel` in the form of a `VersionedModelAdmin`."""

    def get_formset(self, request: HttpRequest, obj: Any = None, **kwargs: Any) -> Any:
        """Return Django's formset, whose forms have tokens.

        Raises ``ImproperlyConfigured`` when rows are saved in the form of an admin that would not compare them.
        """
        if request.method == "POST" and obj is not None and collected_of(request) is None and not _is_copy(request):
            raise ImproperlyConfigured(f"{type(self).__name__} belongs into a VersionedModelAdmin")
        kwargs["form"] = seen_form(kwargs.get("form", self.form), collected_of(request), is_row=True)
        return super().get_formset(request, obj, **kwargs)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return Django's, and the version."""
        return _with(super().get_readonly_fields(request, obj), version_name(self.model))

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return Django's with the token, which is a hidden field of the last one."""
        return _with_token(super().get_fieldsets(request, obj), wanted=self._may_change(request, obj))

    def _may_change(self, request: HttpRequest, obj: Any) -> bool:
        """Whether the rows are shown as forms; a parent that may only be viewed makes Django show them as text."""
        parent: Any = self.admin_site._registry.get(self.parent_model)
        may = parent is None or obj is None or parent.has_change_permission(request, obj)
        return bool(may and self.has_change_permission(request, obj))


class VersionedTabularInline(VersionedInlineMixin, admin.TabularInline):  # type: ignore[type-arg]
    """A tabular inline of versioned rows."""


class VersionedStackedInline(VersionedInlineMixin, admin.StackedInline):  # type: ignore[type-arg]
    """A stacked inline of versioned rows."""


def _is_copy(request: HttpRequest) -> bool:
    """Whether what was typed is to be saved as a new object."""
    return "_saveasnew" in request.POST


def _with(names: Any, name: str) -> tuple[Any, ...]:
    return tuple(names) if name in names else (*names, name)


def _without(fieldsets: Any, *left_out: str) -> list[tuple[Any, dict[str, Any]]]:
    def kept(fields: Any) -> list[Any]:
        lines = (tuple(kept(line)) if isinstance(line, list | tuple) else line for line in fields)
        return [line for line in lines if line not in ((), *left_out)]

    return [(name, {**options, "fields": kept(options["fields"])}) for name, options in fieldsets]


def _with_token(fieldsets: Any, *, wanted: bool) -> list[tuple[Any, dict[str, Any]]]:
    """Return the fieldsets with the token's field once, in the last one, or nowhere."""
    result = _without(fieldsets, FIELD)
    if wanted and result:
        result[-1][1]["fields"].append(FIELD)
    return result
