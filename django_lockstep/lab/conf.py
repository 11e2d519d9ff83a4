"""The lab's settings, read when they are needed and never written back."""

from collections.abc import Sequence
from pathlib import Path

from django.conf import settings


def simulate_migrates() -> bool:
    """``LOCKSTEP_LAB_MIGRATES`` (default False): whether simulate may apply migrations that are missing."""
    return bool(getattr(settings, "LOCKSTEP_LAB_MIGRATES", False))


def secrets() -> Sequence[str]:
    """``LOCKSTEP_LAB_SECRETS`` (default: none): columns to mask, in addition to passwords and tokens."""
    return tuple(getattr(settings, "LOCKSTEP_LAB_SECRETS", ()))


def races() -> Sequence[str]:
    """``LOCKSTEP_LAB_RACES`` (default: none): dotted paths of the races that ``explore`` and the pages list."""
    return tuple(getattr(settings, "LOCKSTEP_LAB_RACES", ()))


def disposable_databases() -> Sequence[str]:
    """``LOCKSTEP_LAB_DISPOSABLE_DATABASES`` (default: none): aliases of databases whose rows are not needed."""
    return tuple(getattr(settings, "LOCKSTEP_LAB_DISPOSABLE_DATABASES", ()))


def audit() -> int:
    """``LOCKSTEP_LAB_AUDIT`` (default 20): random walks beside each search that would hold, which must end as it does.

    0 for none.
    """
    return int(getattr(settings, "LOCKSTEP_LAB_AUDIT", 20))


def found_races() -> Path | None:
    """``LOCKSTEP_LAB_FOUND_RACES`` (default none): the recording of ``--find-races`` that a page of the lab shows."""
    path = getattr(settings, "LOCKSTEP_LAB_FOUND_RACES", None)
    return None if path is None else Path(path)


def live_folder() -> Path | None:
    """``LOCKSTEP_LAB_LIVE_FOLDER`` (default: a temporary one of the user): where the pages' runs say how far they are.

    Every process of the server on a host needs the same one, and nobody else may write there.
    """
    path = getattr(settings, "LOCKSTEP_LAB_LIVE_FOLDER", None)
    return None if path is None else Path(path)


def runs_in_pages() -> bool:
    """``LOCKSTEP_LAB_RUNS_IN_PAGES`` (default ``DEBUG``): whether the lab's pages may run races."""
    return bool(getattr(settings, "LOCKSTEP_LAB_RUNS_IN_PAGES", settings.DEBUG))


def public() -> bool:
    """``LOCKSTEP_LAB_PUBLIC`` (default False): whether the lab's pages are everyone's, instead of the staff's."""
    return bool(getattr(settings, "LOCKSTEP_LAB_PUBLIC", False))
