"""The app's configuration."""

from django.apps import AppConfig


class StoresConfig(AppConfig):
    """Stores: the command that makes tables on DynamoDB, and the checks of ``LOCKSTEP_STORES``. It has no models."""

    name = "django_lockstep.stores"
    label = "lockstep_stores"

    def ready(self) -> None:
        from django_lockstep.stores import checks  # noqa: F401
