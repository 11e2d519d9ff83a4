"""The app's configuration."""

from django.apps import AppConfig


class CompiledConfig(AppConfig):
    """Registers the counterparts; it has no models."""

    name = "accounts.contrib.compiled"
    label = "accounts_compiled"

    def ready(self) -> None:
        from accounts import batches
        from accounts.contrib.compiled import counterparts
        from accounts.contrib.compiled.batches import apply_changes
        from accounts.engine import register_counterpart
        from accounts.models import AbstractAccount

        for method in counterparts.METHODS:
            register_counterpart(getattr(AbstractAccount, method.__name__), method)
        register_counterpart(batches.apply_changes, apply_changes)
