"""A model without a table, with which the admin lists the page of locks and checks its permission."""

from django.db import models
from django.utils.translation import gettext_lazy as _


class Lock(models.Model):
    """Stands for the locks of the PostgreSQL server; never stored, never queried."""

    pid = models.IntegerField(primary_key=True)

    class Meta:
        managed = False
        default_permissions = ("view",)
        permissions = (("end_session", _("Can cancel statements and terminate sessions")),)
        verbose_name = _("lock")
        verbose_name_plural = _("locks: who waits for whom")
