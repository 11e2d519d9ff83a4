"""The queue for `Account`, ready to install."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from accounts.contrib.queued.abstract import AbstractQueuedChange
from accounts.models import Account

__all__ = ["QueuedChange"]


class QueuedChange(AbstractQueuedChange):
    """A change of an `Account` that waits to be applied, or what it came to."""

    # Without a constraint: checking it would lock the account's row, which is what the queue keeps writers away from.
    # Without indexes: consumers find what is pending by another one, and every change would pay for them.
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
        help_text=_("Where a transfer goes to."),
    )

    class Meta(AbstractQueuedChange.Meta):
        verbose_name = _("queued change")
        verbose_name_plural = _("queued changes")
