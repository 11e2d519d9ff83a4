"""The lab's settings, read when they are needed and never written back."""

from django.conf import settings


def simulate_migrates() -> bool:
    """``ACCOUNTS_SIMULATE_MIGRATES`` (default False): whether simulate may apply migrations that are missing."""
    return bool(getattr(settings, "ACCOUNTS_SIMULATE_MIGRATES", False))
