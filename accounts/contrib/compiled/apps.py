"""The app's configuration."""

from django.apps import AppConfig


class CompiledConfig(AppConfig):
    """Registers the counterparts; it has no models."""

    name = "accounts.contrib.compiled"
    label = "accounts_compiled"

    def ready(self) -> None:
        from accounts import batches, strategies
        from accounts.contrib.compiled import account
        from accounts.contrib.compiled import strategies as compiled
        from accounts.contrib.compiled.batches import apply_changes
        from accounts.engine import register_counterpart
        from accounts.models import AbstractAccount

        for name in account.__all__:
            register_counterpart(getattr(AbstractAccount, name), getattr(account, name))
        register_counterpart(batches.apply_changes, apply_changes)
        for name in compiled.__all__:
            register_counterpart(type(strategies.STRATEGIES[name]), getattr(compiled, name))
