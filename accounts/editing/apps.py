"""The app's configuration."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class EditingConfig(AppConfig):
    """Edit locks on tables and records. Works without the app ``accounts``."""

    name = "accounts.editing"
    label = "editing"
    verbose_name = _("Edit locks")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the system checks."""
        from accounts.editing import checks  # noqa: F401
