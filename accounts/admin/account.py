"""Accounts and entries in the admin."""

from __future__ import annotations

from django.contrib import admin

from accounts.admin.base import AnyAccountAdmin, LedgerInline
from accounts.models import Account, Entry
from django_lockstep.admin.read_only import ReadOnly


class EntryInline(LedgerInline):
    """The entries of an account."""

    model = Entry


@admin.register(Account)
class AccountAdmin(AnyAccountAdmin):
    """Opens accounts and changes their terms; a balance changes only by entries."""

    inlines = (EntryInline,)


@admin.register(Entry)
class EntryAdmin(ReadOnly, admin.ModelAdmin):  # type: ignore[type-arg]
    """Shows the entries of all accounts, read-only."""

    list_display = ("pk", "account", "amount", "balance_after", "version_after", "created_at")
    list_select_related = ("account",)
    list_filter = ("created_at",)
    search_fields = ("=account__pk", "=idempotency_key", "=transfer")
    date_hierarchy = "created_at"

    class Media:
        css = {"all": ("accounts/admin.css",)}
