"""The app's configuration."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class EditingConfig(AppConfig):
    """Edit locks on tables and records. One app of its own, needed by nothing else."""

    name = "django_lockstep.editing"
    label = "lockstep_editing"
    verbose_name = _("Edit locks")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from django_lockstep.editing import checks, conf, triggers  # noqa: F401 - the last, so that the base app knows it
