"""The app of the demo project."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class BankConfig(AppConfig):
    """The pages and articles of the demo."""

    name = "bank"
    verbose_name = _("Bank")
