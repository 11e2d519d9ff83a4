"""Items on PostgreSQL, and the tokens of transactions that were done."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_lockstep.stores.terms import LONGEST

__all__ = ["StoredItem", "StoredToken"]


class StoredItem(models.Model):
    """An item; only the module `postgresql` writes rows."""

    key = models.CharField(_("key"), max_length=LONGEST, primary_key=True)
    version = models.BigIntegerField(_("version"))
    attributes = models.JSONField(
        _("attributes"), help_text=_("In DynamoDB's typed form, so that numbers stay decimal.")
    )

    class Meta:
        verbose_name = _("item")
        verbose_name_plural = _("items")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return self.key


class StoredToken(models.Model):
    """A transaction's idempotency token, and the digest of what it wrote."""

    token = models.CharField(_("token"), max_length=36, primary_key=True)
    digest = models.CharField(_("digest"), max_length=64)
    created_at = models.DateTimeField(_("created at"), db_index=True)

    class Meta:
        verbose_name = _("idempotency token")
        verbose_name_plural = _("idempotency tokens")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return self.token
