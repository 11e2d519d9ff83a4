"""The app's configuration."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class LeasesConfig(AppConfig):
    """Leases: one table. Needs ``django_lockstep.locking`` and no other room; none needs it."""

    name = "django_lockstep.leases"
    label = "lockstep_leases"
    verbose_name = _("Leases")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from django_lockstep.leases import checks  # noqa: F401
