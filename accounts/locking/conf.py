"""The library's settings, read when they are needed and never written back."""

from django.conf import settings


def retry_waits() -> bool:
    """``ACCOUNTS_RETRY_WAITS`` (default True): False takes the pauses out of every retry, for tests."""
    return bool(getattr(settings, "ACCOUNTS_RETRY_WAITS", True))
