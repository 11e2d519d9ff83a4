"""Rows in several tables: whoever writes or locks one does so in one order, so that no two of them deadlock."""

from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest
from django.db import transaction

from django_lockstep.lab.explorer import Scenario, explore
from django_lockstep.locking import StaleVersionError, lock_row
from tests.testapps.shop.models import BoxSeat, Stage

pytestmark = pytest.mark.django_db(transaction=True)

VALUES: dict[type[Any], dict[str, Any]] = {
    BoxSeat: {"guest": "Ada", "champagne": True},
    Stage: {"name": "Globe", "guest": "Ada"},
}
"""In each of the two tables a field."""


def save(row: Any) -> None:
    for name, value in VALUES[type(row)].items():
        setattr(row, name, value)
    row.save()


def update_if_unchanged(row: Any) -> None:
    row.update_if_unchanged(**VALUES[type(row)])


def update_many_if_unchanged(row: Any) -> None:
    type(row).objects.update_many_if_unchanged([(row.pk, row.version, VALUES[type(row)])])


def lock(row: Any) -> None:
    with transaction.atomic():
        lock_row(type(row), row.pk)


def delete(row: Any) -> None:
    row.delete()


WAYS = (save, update_if_unchanged, update_many_if_unchanged, lock, delete)
PAIRS = {f"{one.__name__}-{other.__name__}": (one, other) for one, other in combinations(WAYS, 2)}


@pytest.mark.parametrize("model", list(VALUES))
@pytest.mark.parametrize("ways", list(PAIRS.values()), ids=PAIRS)
def test_no_two_ways_deadlock(model: type[Any], ways: tuple[Callable[[Any], None], ...]) -> None:
    def actor(way: Callable[[Any], None]) -> Callable[[Any], None]:
        def act(pk: Any) -> None:
            row = model.objects.filter(pk=pk).first()
            if row is None:
                return
            try:
                way(row)
            except (StaleVersionError, model.DoesNotExist):
                return

        return act

    found = explore(
        Scenario(
            set_up=lambda: model.objects.create().pk,
            actors={way.__name__: actor(way) for way in ways},
            invariant=lambda pk: True,
        )
    )
    assert (found.verdict, found.deadlocks, found.errors) == ("holds", 0, {})
