"""Accounts and entries in the admin: to look at, and to open new accounts."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from accounts.models import Account, Entry


@admin.register(Account)
class AccountAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Opens accounts; balances change by entries alone, and an account with entries is there to stay."""

    list_display = ("pk", "user", "balance", "overdraft_limit", "version", "updated_at")
    list_select_related = ("user",)
    fields = ("user", "balance", "overdraft_limit", "version", "created_at", "updated_at")
    readonly_fields = ("version", "created_at", "updated_at")
    raw_id_fields = ("user",)

    def get_search_fields(self, request: HttpRequest) -> tuple[str, ...]:
        """Search by the user model's own user name."""
        from django.contrib.auth import get_user_model

        return (f"user__{get_user_model().USERNAME_FIELD}__startswith", "=pk")

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse: a balance changes by entries, and a form would not know what changed since it was opened."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse: the admin would delete without looking at the version."""
        return False


@admin.register(Entry)
class EntryAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Shows the ledger."""

    list_display = ("pk", "account", "amount", "balance_after", "version_after", "created_at")
    list_select_related = ("account",)
    search_fields = ("=account__pk", "=idempotency_key", "=transfer")
    date_hierarchy = "created_at"

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Refuse: an entry comes with a change of a balance."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse: entries are append-only."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse: entries are append-only."""
        return False
