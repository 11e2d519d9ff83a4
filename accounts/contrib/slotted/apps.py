"""The app's configuration."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class SlottedConfig(AppConfig):
    """Slotted accounts: four tables; ``accounts`` itself need not be installed."""

    name = "accounts.contrib.slotted"
    label = "accounts_slotted"
    verbose_name = _("Slotted accounts")
    default_auto_field = "django.db.models.BigAutoField"
