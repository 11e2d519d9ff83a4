"""The app's configuration."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class QueuedConfig(AppConfig):
    """The queue for ``accounts.Account``: one table."""

    name = "accounts.contrib.queued"
    label = "accounts_queued"
    verbose_name = _("Queued changes")
    default_auto_field = "django.db.models.BigAutoField"
