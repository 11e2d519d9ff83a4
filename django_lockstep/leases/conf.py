"""The app's settings, read when they are needed."""

from django.conf import settings


def lease_waits() -> bool:
    """``LOCKSTEP_LEASE_WAITS`` (default True): False makes every ``wait`` a single attempt, for tests."""
    return bool(getattr(settings, "LOCKSTEP_LEASE_WAITS", True))
