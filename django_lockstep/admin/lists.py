"""The change list: edited rows and actions are compared with the versions that were listed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import ValidationError
from django.db import models, router, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.template.response import TemplateResponse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from django_lockstep.admin.conflicts import collect, collected_of
from django_lockstep.admin.forms import seen_form
from django_lockstep.admin.outdated import find_outdated
from django_lockstep.admin.pages import conflict_page, outdated_page, replay_rows
from django_lockstep.admin.tokens import FIELD, Seen, version_name, version_of
from django_lockstep.errors import SerializationFailure, StaleVersionError, raise_if_committed, translated_errors
from django_lockstep.locking.rows import lock_rows

_COLUMN = "_lockstep_admin_column"


class ListMixin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Adds a token for each row to the version's column."""

    def get_list_display(self, request: HttpRequest) -> Any:
        """Return Django's columns with the version, whose column has the tokens."""
        columns = list(super().get_list_display(request))
        name, column = version_name(self.model), self._column(request)
        return [column if shown == name else shown for shown in columns] + [column] * (name not in columns)

    def seen_inputs(self, objects: Iterable[models.Model]) -> SafeString:
        """Return hidden inputs with the versions that were shown.

        For the form of an action's intermediate page: put them beside the primary keys.
        """
        tokens = ((FIELD, Seen.of(obj).sign()) for obj in objects)
        return format_html_join("", '<input type="hidden" name="{}" value="{}">', tokens)

    def get_changelist_form(self, request: HttpRequest, **kwargs: Any) -> Any:
        """Return Django's form of a row; on a save it is compared with the row as it was listed."""
        form = kwargs.get("form", forms.ModelForm)
        kwargs["form"] = seen_form(form, collected_of(request), is_row=True, is_listed=True)
        return super().get_changelist_form(request, **kwargs)

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Save the edited rows; those that another user changed are left out and then shown with 409."""
        self._unpack(request)
        if request.method != "POST" or "_save" not in request.POST:
            return super().changelist_view(request, extra_context)
        # Each failed attempt leaves out one more row, so the loop ends.
        for _attempt in range(len(request.POST.getlist(FIELD)) + 1):
            try:
                return self._save_rows(request, extra_context)
            except (StaleVersionError, SerializationFailure, self.model.DoesNotExist) as error:
                raise_if_committed(error)
        return self._save_rows(request, extra_context)

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Unpack tokens here as well: from Django 6.1 the change form may offer actions."""
        self._unpack(request)
        return super().changeform_view(request, *args, **kwargs)

    def save_model(self, request: HttpRequest, obj: models.Model, form: object, change: bool) -> None:
        """Save, and record the saved rows of a list."""
        super().save_model(request, obj, form, change)
        collected = collected_of(request)
        if collected and getattr(form, "is_listed", False):
            collected.saved.append(str(obj))

    def response_action(self, request: HttpRequest, queryset: models.QuerySet[Any], *args: Any, **kwargs: Any) -> Any:
        """Run the action if every object is unchanged since it was listed; otherwise answer 409 without running it.

        The objects are locked ``FOR NO KEY UPDATE`` in primary-key order, from the comparison to the action's end. When
        all pages are selected, only listed objects are compared. Objects outside ``get_queryset`` are not locked and
        are treated as missing.
        """
        across = request.POST.get("select_across") == "1"
        pks: list[Any] = (
            list(queryset.values_list("pk", flat=True)) if across else request.POST.getlist(ACTION_CHECKBOX_NAME)
        )
        using = router.db_for_write(self.model)
        # One transaction for comparison and action: the row locks end with it, after the action's writes.
        with translated_errors(model=self.model), transaction.atomic(using=using):
            rows = {str(row.pk): row for row in _locked(self.get_queryset(request), pks, using=using)}
            outdated = find_outdated(pks, listed=self._listed(request), rows=rows, complete=not across)
            if not outdated:
                return self._with_tokens(super().response_action(request, queryset, *args, **kwargs))
        title, back = _("Not done: changed in the meantime"), request.get_full_path()
        return outdated_page(request, self, outdated, title=title, back=back, action=True)

    def _save_rows(self, request: HttpRequest, extra_context: Any) -> HttpResponse:
        collected = collect(request, listed=self._listed(request))
        response = super().changelist_view(request, extra_context)
        # Anything but a redirect is the list again, with validation errors; its tokens stay as submitted.
        if response.status_code != 302 or not collected.conflicts:
            return response
        return conflict_page(request, self, collected, inputs=replay_rows(request.POST, collected))

    def _column(self, request: HttpRequest) -> Callable[[Any], SafeString]:
        """Return the column, the same object for one request: Django compares columns by identity."""
        column: Callable[[Any], SafeString] | None = getattr(request, _COLUMN, None)
        if column is not None:
            return column
        field: Any = self.opts.get_field(version_name(self.model))
        posted = self._listed(request)

        @admin.display(description=str(field.verbose_name), ordering=field.name)
        def version(obj: Any) -> SafeString:
            # A list shown again keeps the typed values, so it keeps the tokens of the versions first listed.
            fresh = Seen.unknown(obj) if request.method == "POST" else Seen.of(obj, self.list_editable)
            seen = posted.get(str(obj.pk), fresh)
            return format_html('{}<input type="hidden" name="{}" value="{}">', version_of(obj), FIELD, seen.sign())

        version.__name__ = field.name
        setattr(request, _COLUMN, version)
        return version

    def _listed(self, request: HttpRequest) -> dict[str, Seen]:
        tokens = (Seen.read(text, self.model) for text in request.POST.getlist(FIELD))
        return {seen.pk: seen for seen in tokens if seen}

    def _unpack(self, request: HttpRequest) -> None:
        """Replace tokens that Django's own page has submitted as primary keys; drop values that are neither."""
        if ACTION_CHECKBOX_NAME not in request.POST:
            return
        data = request.POST.copy()
        values = data.getlist(ACTION_CHECKBOX_NAME)
        tokens = {text: seen for text in values if (seen := Seen.read(text, self.model))}
        keys = [tokens[text].pk if text in tokens else text for text in values]
        data.setlist(ACTION_CHECKBOX_NAME, [pk for pk in dict.fromkeys(keys) if _is_key(self.model, pk)])
        data.setlist(FIELD, [*data.getlist(FIELD), *tokens])
        # Django's list code reads the selection from POST only.
        request.POST = data  # type: ignore[assignment]

    def _with_tokens(self, response: HttpResponseBase | None) -> HttpResponseBase | None:
        """Put the compared versions into a confirmation page's form.

        Django's page, and every theme's, writes the primary keys of ``queryset`` into its form; it gets tokens instead.
        """
        if isinstance(response, TemplateResponse) and "queryset" in (response.context_data or {}):
            context: Any = response.context_data
            context["queryset"] = [SimpleNamespace(pk=Seen.of(obj).sign()) for obj in context["queryset"]]
        return response


def _is_key(model: type[models.Model], text: str) -> bool:
    try:
        model._meta.pk.to_python(text)
    except ValidationError:
        return False
    return True


def _locked(visible: models.QuerySet[Any], pks: Iterable[object], *, using: str) -> list[models.Model]:
    """Lock the visible rows FOR NO KEY UPDATE, and return those still visible after the wait."""
    model = visible.model
    # By key through the base manager: a query set with joins cannot always be locked, or repeats rows.
    keys = visible.using(using).filter(pk__in=list(pks)).values_list("pk", flat=True)
    while True:
        try:
            rows = lock_rows(model._base_manager, keys.all(), using=using)
        except model.DoesNotExist:
            continue  # a row was deleted during the wait: lock the others
        # Read again under the locks: during the wait a row may have left the user's query set.
        left = set(keys.all())
        return [row for row in rows if row.pk in left]
