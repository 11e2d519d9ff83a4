"""The monitor's configuration."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class MonitorConfig(AppConfig):
    """The app of the monitor: a command, a page of the admin, and no tables."""

    name = "django_lockstep.monitor"
    label = "lockstep_monitor"
    verbose_name = _("Locks")
