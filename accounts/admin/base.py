"""Base classes for the admin of any account model."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.auth import get_user_model
from django.core.paginator import Page, Paginator
from django.db import models
from django.db.models import QuerySet
from django.forms import BaseInlineFormSet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from accounts.admin.booking import MoneyField
from accounts.admin.views import BookingMixin
from django_lockstep.admin.read_only import ReadOnly
from django_lockstep.admin.versioned import VersionedModelAdmin

PAGE = "entries"
"""The query parameter with the page number of an account's entries."""


class PagedFormSet(BaseInlineFormSet):  # type: ignore[type-arg]
    """A formset of one page of its rows."""

    number: str = "1"
    """The requested page number, unchecked."""
    size = 20
    """Rows on a page."""

    def get_queryset(self) -> QuerySet[Any]:
        return self.page.object_list  # type: ignore[return-value]

    @property
    def page(self) -> Page[Any]:
        """The requested page, or the nearest one that exists."""
        if not hasattr(self, "_page"):
            # Cached: the formset asks for its rows several times, and each page is two queries.
            self._page = Paginator(super().get_queryset(), self.size).get_page(self.number)
        return self._page


class LedgerInline(ReadOnly, admin.TabularInline):  # type: ignore[type-arg]
    """An account's entries, the newest first, twenty on a page; ``model`` is the entry model."""

    formset = PagedFormSet
    template = "admin/accounts/paged_tabular.html"
    fields = readonly_fields = ("amount", "balance_after", "version_after", "transfer", "created_at")
    ordering = ("-pk",)
    show_change_link = True
    extra = 0

    def get_formset(self, request: HttpRequest, obj: models.Model | None = None, **kwargs: object) -> Any:
        formset = super().get_formset(request, obj, **kwargs)
        formset.number = request.GET.get(PAGE, "1")  # type: ignore[attr-defined]
        return formset


class BalanceFilter(admin.SimpleListFilter):
    """Filters accounts by the sign of the balance."""

    title = _("balance")
    parameter_name = "sign"

    def lookups(self, request: HttpRequest, model_admin: object) -> list[tuple[str, Any]]:
        return [("gt", _("Above zero")), ("exact", _("Zero")), ("lt", _("Overdrawn"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(**{f"balance__{self.value()}": 0}) if self.value() in {"gt", "exact", "lt"} else queryset


class AccountForm(forms.ModelForm):  # type: ignore[type-arg]
    """The terms of an account."""

    def clean_overdraft_limit(self) -> Any:
        """Refuse a limit that the balance already exceeds: the model's constraint would only fail in the database."""
        limit = self.cleaned_data["overdraft_limit"]
        if not self.instance._state.adding and self.instance.balance < -limit:
            raise forms.ValidationError(
                _("The balance is already %(balance)s."), params={"balance": self.instance.balance}
            )
        return limit


class AnyAccountAdmin(BookingMixin, VersionedModelAdmin):
    """Opens accounts of any model and changes their terms; a balance changes only by entries."""

    form = AccountForm
    formfield_overrides = {models.DecimalField: {"form_class": MoneyField}}
    list_display = ("pk", "user", "balance", "overdraft_limit", "version", "updated_at")
    list_filter = (BalanceFilter, "updated_at", "created_at")
    list_select_related = ("user",)
    fields = ("user", "balance", "overdraft_limit", "version", "created_at", "updated_at")
    readonly_fields = ("version", "created_at", "updated_at")
    raw_id_fields = ("user",)
    search_help_text = _("The beginning of a user name, or the number of an account")
    change_form_template = "admin/accounts/account_change_form.html"
    change_list_template = "admin/accounts/account_change_list.html"

    class Media:
        css = {"all": ("accounts/admin.css",)}

    def get_search_fields(self, request: HttpRequest) -> tuple[str, ...]:
        """Search by the field that the user model uses as its user name."""
        return (f"user__{get_user_model().USERNAME_FIELD}__startswith", "=pk")

    def get_readonly_fields(self, request: HttpRequest, obj: models.Model | None = None) -> Any:
        """Allow a balance only when the account is opened."""
        fields = super().get_readonly_fields(request, obj)
        return fields if obj is None else (*fields, "balance")

    def get_inlines(self, request: HttpRequest, obj: models.Model | None = None) -> Any:
        """Show no entries on the add page."""
        return super().get_inlines(request, obj) if obj is not None else ()
