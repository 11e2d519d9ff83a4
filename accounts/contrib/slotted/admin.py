"""Slotted accounts in the admin: opened, and looked at; money moves by `SlottedAccount` alone."""

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
    """The slots of an account, those too that are no longer needed."""

    model = Slot
    fields = ("number", "balance", "overdraft_limit", "version")
    ordering = ("number",)
    extra = 0


@admin.register(SlottedAccount)
class SlottedAccountAdmin(Final, admin.ModelAdmin):  # type: ignore[type-arg]
    """Opens accounts, with nothing on them, and shows them.

    Nothing is changed here: slots are many rows that others write all the time, see `SlottedAccount.reshape`. Nothing
    is deleted either: every account has slots.
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
        """Add up the slots, in the statement that reads the accounts."""
        return super().get_queryset(request).with_totals()  # type: ignore[attr-defined,no-any-return]

    def get_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Return what an account is opened with, or what there is to know about it."""
        terms = ("user", "size", "overdraft_limit")
        return terms if obj is None else ("user", "size", "balance", "overdraft_limit", "created_at")

    def get_inlines(self, request: HttpRequest, obj: Any = None) -> Any:
        """Leave out the slots of an account that is only being opened."""
        return () if obj is None else (SlotInline,)

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        """Return the form, which asks for the limit of the whole as a slot's own field would."""
        if obj is None:
            limit = self.formfield_for_dbfield(Slot._meta.get_field("overdraft_limit"), request, min_value=0)
            kwargs["form"] = type("OpeningForm", (forms.ModelForm,), {"overdraft_limit": limit})
        return super().get_form(request, obj, change, **kwargs)

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Return Django's field; an account has at least one slot."""
        least = {"min_value": 1} if db_field.name == "size" else {}
        return super().formfield_for_dbfield(db_field, request, **kwargs, **least)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Open the account."""
        opened = self.model.open(obj.user, size=obj.size, overdraft_limit=form.cleaned_data["overdraft_limit"])
        obj.pk = opened.pk

    @admin.display(description=_("balance"), ordering="total_balance")
    def balance(self, account: Any) -> str:
        """Return the exact sum of its slots."""
        return number_format(account.total_balance, PLACES)

    @admin.display(description=_("overdraft limit"), ordering="total_limit")
    def overdraft_limit(self, account: Any) -> str:
        """Return the sum of its slots' limits."""
        return number_format(account.total_limit, PLACES)
