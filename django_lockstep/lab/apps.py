"""The lab's configuration."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class LabConfig(AppConfig):
    """The app of the lab: commands, and no tables."""

    name = "django_lockstep.lab"
    label = "lockstep_lab"
    verbose_name = _("Race lab")
