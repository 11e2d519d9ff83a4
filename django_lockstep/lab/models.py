"""No tables: what the admin needs to list, and to permit, a page that shows the server's locks."""

from django.db import models
from django.utils.translation import gettext_lazy as _


class Lock(models.Model):
    """Stands for the locks that PostgreSQL knows; never stored, never queried."""

    pid = models.IntegerField(primary_key=True)

    class Meta:
        managed = False
        default_permissions = ("view",)
        verbose_name = _("lock")
        verbose_name_plural = _("locks: who waits for whom")
