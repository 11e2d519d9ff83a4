"""What a test looks at: a row as it is now, and what a call sends."""

import itertools
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_lockstep.locking import VersionedModel
from django_lockstep.locking.versions import seen_version
from tests.testapps.shop.models import BoxSeat, CheapSeat, OddSeat, PairSeat, Seat, Stage, StampedSeat, UuidSeat

_numbers = itertools.count()
REFUSED = "refresh_from_db"

KINDS: dict[str, Any] = {
    "plain": Seat.objects.create,
    "stamped": StampedSeat.objects.create,
    "child": BoxSeat.objects.create,
    "version in the child": Stage.objects.create,
    "proxy": CheapSeat.objects.create,
    "uuid": UuidSeat.objects.create,
    "composite key": lambda: PairSeat.objects.create(hall="B", number=next(_numbers)),
    "odd names": lambda: OddSeat.objects.create(code="A/1 'x' 100%"),
}
every_kind = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
"""Creates a row of every kind of versioned model."""


def fresh(instance: Any) -> Any:
    """Return the instance as its row is now."""
    return type(instance).objects.get(pk=instance.pk)


def statements(function: Any, *args: Any, **kwargs: Any) -> list[str]:
    """Return the first words of the statements that the call sends."""
    with CaptureQueriesContext(connection) as captured:
        function(*args, **kwargs)
    return [entry["sql"].split()[0] for entry in captured]


def assert_refused(instance: VersionedModel) -> None:
    """Every write is refused, and nothing is sent; once it was read again, it can be written."""
    for write in (instance.save, instance.delete, instance.update_if_unchanged, lambda: seen_version(instance)):
        with CaptureQueriesContext(connection) as captured, pytest.raises(ValueError, match=REFUSED):
            write()
        assert not captured
    instance.refresh_from_db()
    instance.save(force_write=True)


def save_once(seat: Seat, guest: str = "Ada") -> None:
    seat.guest = guest
    seat.save()
