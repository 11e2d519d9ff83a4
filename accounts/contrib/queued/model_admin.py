"""The admin of any queue: pending changes with their age, and the results of the others."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.contrib.auth import get_user_model
from django.core.exceptions import ObjectDoesNotExist
from django.db.models import DurationField, ExpressionWrapper, F, QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.formats import number_format
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from accounts.contrib.queued.refusals import describe_refusal
from django_lockstep.admin.read_only import ReadOnly
from django_lockstep.locking.durations import in_seconds

__all__ = ["AnyQueuedChangeAdmin"]


class AnyQueuedChangeAdmin(ReadOnly, admin.ModelAdmin):  # type: ignore[type-arg]
    """Shows a queue, the newest change first, read-only. ``manage.py purge_queued`` deletes old changes."""

    list_display = ("pk", "source", "goal", "signed_amount", "state", "outcome", "age", "queued_at", "decided_at")
    list_filter = ("state", "queued_at")
    # Without this, each search would also count the whole table.
    show_full_result_count = False
    ordering = ("-pk",)
    search_fields = ("=account__pk", "idempotency_key__exact")
    fields = (
        "source",
        "goal",
        "signed_amount",
        "idempotency_key",
        "state",
        "outcome",
        "version_after",
        "queued_at",
        "decided_at",
        "age",
    )
    search_help_text = gettext_lazy("The beginning of a user name, the number of an account, or an idempotency key")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        found, may_repeat = super().get_search_results(request, queryset, search_term)
        term = search_term.strip()
        if not term:
            return found, may_repeat
        # Not one of the search fields: see get_queryset.
        name = {f"user__{get_user_model().USERNAME_FIELD}__startswith": term}
        return found | queryset.filter(account__in=self.model.account_model()._base_manager.filter(**name)), may_repeat

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Add each change's age, by the database's clock, and fetch the accounts that still exist."""
        # Not by a join: that of a foreign key without a constraint would leave out changes of accounts that are gone.
        rows: QuerySet[Any] = super().get_queryset(request).prefetch_related("account", "target")
        timed: QuerySet[Any] = rows.annotate(waited=ExpressionWrapper(Now() - F("queued_at"), DurationField()))
        return timed

    @admin.display(description=gettext_lazy("account"))
    def source(self, change: object) -> str:
        return self._shown(change, "account")

    @admin.display(description=gettext_lazy("target"))
    def goal(self, change: object) -> str:
        return self._shown(change, "target")

    @admin.display(description=gettext_lazy("amount"))
    def signed_amount(self, change: Any) -> Decimal:
        """Return the change of the account's own balance, negative for a withdrawal and a transfer."""
        amount: Decimal = change.changes()[0].amount
        return amount

    @admin.display(description=gettext_lazy("outcome"))
    def outcome(self, change: Any) -> str:
        """Return the balance after it, or why it was refused."""
        if change.state == change.State.APPLIED:
            balance = number_format(change.balance_after)
            return (_("balance %s, applied before") if change.replayed else _("balance %s")) % balance
        return describe_refusal(change.refusal) if change.refusal else ""

    @admin.display(description=gettext_lazy("age"), ordering="-queued_at")
    def age(self, change: Any) -> str:
        """Return how long a pending change has been waiting; empty for others."""
        return in_seconds(change.waited) if change.state == change.State.PENDING else ""

    def _shown(self, change: object, name: str) -> str:
        """Return the account, with a link where it has an admin page; if it no longer exists, its key."""
        pk = getattr(change, f"{name}_id")
        try:
            account = getattr(change, name)
        except ObjectDoesNotExist:
            account = None
        if account is None:
            return "" if pk is None else _("%s (deleted)") % pk
        page = f"admin:{account._meta.app_label}_{account._meta.model_name}_change"
        try:
            address = reverse(page, args=[quote(pk)], current_app=self.admin_site.name)
        except NoReverseMatch:
            return str(account)
        return format_html('<a href="{}">{}</a>', address, account)
