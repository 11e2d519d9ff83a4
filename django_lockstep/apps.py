"""The library's configuration."""

from django.apps import AppConfig, apps
from django.db.models.signals import pre_migrate
from django.utils.translation import gettext_lazy as _


class LockstepConfig(AppConfig):
    """The base app: system checks of versioned models, the admin's templates and scripts. No tables."""

    name = "django_lockstep"
    label = "lockstep"
    verbose_name = _("Lockstep")

    def ready(self) -> None:
        """Register the system checks, and let migrations restore our triggers."""
        from django_lockstep import checks  # noqa: F401 - and with it those of locking
        from django_lockstep.locking.triggers import restore_triggers

        if apps.is_installed("django.contrib.admin"):
            from django_lockstep.admin import checks as _checks  # noqa: F401
        pre_migrate.connect(restore_triggers)  # from any app: for this one, without models, it is not sent
