"""The demo's own configuration: no models, no pages."""

from django.apps import AppConfig
from django.db.backends.signals import connection_created


class BankConfig(AppConfig):
    """Looks at each database once, when a process first connects to it."""

    name = "bank"
    verbose_name = "Bank"

    def ready(self) -> None:
        """Look before anything else does, be it a command or a page."""
        from bank.old_layout import refuse_old_layout

        connection_created.connect(refuse_old_layout, dispatch_uid="bank.old_layout")
