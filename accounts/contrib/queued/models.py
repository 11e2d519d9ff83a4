"""The queue for `Account`, ready to install."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from accounts.contrib.queued.abstract import AbstractQueuedChange
from accounts.models import Account

__all__ = ["QueuedChange"]


class QueuedChange(AbstractQueuedChange):
    """A change of an `Account` that is pending, or has a result."""

    # No constraint: checking it would take a lock on the account's row, which the queue exists to avoid.
    # No indexes: consumers use the index of pending changes, and every INSERT would pay for more.
    account = models.ForeignKey(
        Account,
        on_delete=models.PROTECT,
        related_name="queued_changes",
        db_constraint=False,
        db_index=False,
        verbose_name=_("account"),
    )
    target = models.ForeignKey(
        Account,
        on_delete=models.PROTECT,
        related_name="queued_arrivals",
        db_constraint=False,
        db_index=False,
        null=True,
        blank=True,
        verbose_name=_("target"),
        help_text=_("The account that receives a transfer."),
    )

    class Meta(AbstractQueuedChange.Meta):
        verbose_name = _("queued change")
        verbose_name_plural = _("queued changes")
