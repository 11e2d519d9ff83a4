"""The table of keys whose work was done."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _


class IdempotencyKey(models.Model):
    """A key and the result of its work, written by the transaction that did the work.

    Only `django_lockstep.idempotency.operations` writes rows. Times are the database's.
    """

    scope = models.CharField(_("scope"), max_length=200)
    key = models.CharField(_("key"), max_length=200)
    fingerprint = models.CharField(_("fingerprint"), max_length=64, blank=True)
    result = models.TextField(_("result"))
    created_at = models.DateTimeField(_("created at"), db_default=Now())
    expires_at = models.DateTimeField(_("expires at"), db_index=True)

    class Meta:
        verbose_name = _("idempotency key")
        verbose_name_plural = _("idempotency keys")
        default_permissions = ("view",)
        constraints = [models.UniqueConstraint(fields=["scope", "key"], name="%(app_label)s_%(class)s_once")]

    def __str__(self) -> str:
        return f"{self.scope}: {self.key}"
