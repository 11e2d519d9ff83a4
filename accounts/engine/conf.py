"""The engine's setting, read when it is needed and never written back."""

from typing import Literal, get_args

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

__all__ = ["EngineName", "engine_name"]

EngineName = Literal["compiled", "plain"]


def engine_name() -> EngineName:
    """``ACCOUNTS_ENGINE``: ``"compiled"`` (the default), or ``"plain"`` to run every method as it is written.

    Raises ``ImproperlyConfigured`` for any other value.
    """
    name: EngineName = getattr(settings, "ACCOUNTS_ENGINE", "compiled")
    if name not in get_args(EngineName):
        names = " or ".join(map(repr, get_args(EngineName)))
        raise ImproperlyConfigured(f"ACCOUNTS_ENGINE must be {names}, not {name!r}")
    return name
