"""The app of the demo project."""

from django.apps import AppConfig
from django.db.backends.signals import connection_created
from django.utils.translation import gettext_lazy as _


class BankConfig(AppConfig):
    """Checks each database for an old layout when a process first connects to it."""

    name = "bank"
    verbose_name = _("Bank")

    def ready(self) -> None:
        from bank.old_layout import refuse_old_layout

        connection_created.connect(refuse_old_layout, dispatch_uid="bank.old_layout")
