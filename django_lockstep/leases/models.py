"""The lease: one row a key, kept after its release."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_lockstep.leases.managers import LeaseManager
from django_lockstep.stores.terms import LONGEST


class Lease(models.Model):
    """A named lock with a time to live, on the database's clock.

    Only the modules `postgresql` and `portable` write rows. ``token`` comes from a sequence and is never used again. It
    is in a unique constraint with the key, so that a takeover changes a key column: a row lock ``FOR KEY SHARE`` (the
    lease guard) stops that, but lets refreshes pass, which only change ``expires_at``. ``expires_at`` has no index, so
    a refresh stays a heap-only update.
    """

    key = models.CharField(_("key"), max_length=LONGEST)
    token = models.BigIntegerField(_("token"))
    owner = models.CharField(_("owner"), max_length=LONGEST)
    data = models.JSONField(_("data"), null=True)
    ttl = models.FloatField(_("time to live"), help_text=_("In seconds, as given when it was acquired."))
    acquired_at = models.DateTimeField(_("acquired at"))
    expires_at = models.DateTimeField(_("expires at"))
    released_at = models.DateTimeField(_("released at"), null=True)

    objects = LeaseManager()

    class Meta:
        verbose_name = _("lease")
        verbose_name_plural = _("leases")
        ordering = ["key"]
        default_permissions = ("view",)
        permissions = [("force_release_lease", _("Can release a held lease by force"))]
        constraints = [
            models.UniqueConstraint(fields=["key"], name="%(app_label)s_%(class)s_key"),
            models.UniqueConstraint(fields=["key", "token"], name="%(app_label)s_%(class)s_key_token"),
        ]

    def __str__(self) -> str:
        return self.key
