"""Slotted accounts in the admin: they can be opened and viewed; only `SlottedAccount` moves money."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.auth import get_user_model
from django.db import models
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.formats import number_format
from django.utils.translation import gettext_lazy as _

from accounts.amounts import PLACES
from accounts.contrib.slotted.models import Slot, SlottedAccount
from accounts.fields import MoneyField
from django_lockstep.admin.read_only import Final, ReadOnly

__all__ = ["SlotInline", "SlottedAccountAdmin"]


class SlotInline(ReadOnly, admin.TabularInline):  # type: ignore[type-arg]
    """The slots of an account, including those that are no longer needed."""

    model = Slot
    fields = ("number", "balance", "overdraft_limit", "version")
    ordering = ("number",)
    extra = 0


@admin.register(SlottedAccount)
class SlottedAccountAdmin(Final, admin.ModelAdmin):  # type: ignore[type-arg]
    """Opens accounts with a balance of 0, and shows them.

    Accounts are not changed here: a form cannot hold many rows that other sessions write all the time, see
    `SlottedAccount.resize`. They are not deleted either: every account has slots.
    """

    formfield_overrides = {models.DecimalField: {"form_class": MoneyField}}
    list_display = ("pk", "user", "size", "balance", "overdraft_limit", "created_at")
    list_filter = ("created_at",)
    list_select_related = ("user",)
    raw_id_fields = ("user",)
    search_help_text = _("The beginning of a user name, or the number of an account")

    class Media:
        css = {"all": ("accounts_slotted/admin.css",)}

    def get_search_fields(self, request: HttpRequest) -> tuple[str, ...]:
        """Search by the user model's own user name."""
        return (f"user__{get_user_model().USERNAME_FIELD}__startswith", "=pk")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Add the sums of the slots, in the statement that reads the accounts."""
        return super().get_queryset(request).with_totals()  # type: ignore[attr-defined,no-any-return]

    def get_fields(self, request: HttpRequest, obj: models.Model | None = None) -> tuple[str, ...]:
        terms = ("user", "size", "overdraft_limit")
        return terms if obj is None else ("user", "size", "balance", "overdraft_limit", "created_at")

    def get_inlines(self, request: HttpRequest, obj: models.Model | None = None) -> Any:
        """Show no slots on the add page."""
        return () if obj is None else (SlotInline,)

    def get_form(
        self, request: HttpRequest, obj: models.Model | None = None, change: bool = False, **kwargs: object
    ) -> Any:
        """Add a field for the account's overdraft limit, which is not a field of the model, to the add form."""
        if obj is None:
            limit = self.formfield_for_dbfield(Slot._meta.get_field("overdraft_limit"), request, min_value=0)
            kwargs["form"] = type("OpeningForm", (forms.ModelForm,), {"overdraft_limit": limit})
        return super().get_form(request, obj, change, **kwargs)

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: object) -> Any:
        """Require at least one slot."""
        least = {"min_value": 1} if db_field.name == "size" else {}
        return super().formfield_for_dbfield(db_field, request, **kwargs, **least)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        opened = self.model.open(obj.user, size=obj.size, overdraft_limit=form.cleaned_data["overdraft_limit"])
        obj.pk = opened.pk

    @admin.display(description=_("balance"), ordering="total_balance")
    def balance(self, account: Any) -> str:
        return number_format(account.total_balance, PLACES)

    @admin.display(description=_("overdraft limit"), ordering="total_limit")
    def overdraft_limit(self, account: Any) -> str:
        return number_format(account.total_limit, PLACES)
