"""The app's configuration."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class IdempotencyConfig(AppConfig):
    """Idempotency keys: one table."""

    name = "django_lockstep.idempotency"
    label = "lockstep_idempotency"
    verbose_name = _("Idempotency keys")
    default_auto_field = "django.db.models.BigAutoField"
