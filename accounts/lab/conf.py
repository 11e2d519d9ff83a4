"""The lab's settings, read when they are needed and never written back."""

from collections.abc import Sequence

from django.conf import settings


def simulate_migrates() -> bool:
    """``ACCOUNTS_SIMULATE_MIGRATES`` (default False): whether simulate may apply migrations that are missing."""
    return bool(getattr(settings, "ACCOUNTS_SIMULATE_MIGRATES", False))


def races() -> Sequence[str]:
    """``ACCOUNTS_LAB_RACES`` (default: the ready-made ones): dotted paths of the races that command and pages list."""
    return tuple(getattr(settings, "ACCOUNTS_LAB_RACES", ["accounts.lab.scenarios.races.RACES"]))


def runs_in_pages() -> bool:
    """``ACCOUNTS_LAB_RUNS_IN_PAGES`` (default ``DEBUG``): whether the lab's pages may run races."""
    return bool(getattr(settings, "ACCOUNTS_LAB_RUNS_IN_PAGES", settings.DEBUG))
