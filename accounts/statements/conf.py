"""The statements' setting, read when it is needed and never written back."""

from django.conf import settings


def compiled_sql() -> bool:
    """``ACCOUNTS_COMPILED_SQL`` (default True): False sends every change of a balance by the query set API."""
    return bool(getattr(settings, "ACCOUNTS_COMPILED_SQL", True))
