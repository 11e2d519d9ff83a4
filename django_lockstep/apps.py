"""The library's configuration."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class LockstepConfig(AppConfig):
    """The base app: system checks of versioned models, the admin's templates and scripts. No tables."""

    name = "django_lockstep"
    label = "lockstep"
    verbose_name = _("Lockstep")

    def ready(self) -> None:
        """Register the system checks."""
        from django_lockstep import checks  # noqa: F401 - and with it those of locking
