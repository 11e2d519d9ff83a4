"""The app's configuration."""

from django.apps import AppConfig


class StoresConfig(AppConfig):
    """Stores: the tables of items on PostgreSQL, and the command that makes those of DynamoDB.

    Leases need this app only for its command and checks.
    """

    name = "django_lockstep.stores"
    label = "lockstep_stores"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from django_lockstep.stores import checks  # noqa: F401
