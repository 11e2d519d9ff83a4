"""Ready-made races for the explorer: each a few lines of ordinary Django code, with what is to be expected of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from django.apps import apps

from django_lockstep.lab.races import Race


def _all_races() -> Iterator[Race]:
    if not apps.is_installed("accounts"):
        return  # the lab explores other people's code just as well
    from accounts.races import by_hand, by_strategy

    yield from by_strategy.races()
    yield from by_hand.RACES
    if apps.is_installed("django_lockstep.leases"):
        from accounts.races import leases

        yield from leases.races()


RACES: Mapping[str, Race] = MappingProxyType({race.name: race for race in _all_races()})
"""Every ready-made race by its name; none where the accounts are not installed, which they are about."""
