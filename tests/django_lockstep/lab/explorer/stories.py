"""Small programs that tests race against each other, in plain Django on the shop's seats and on accounts."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from django.db import transaction
from django.db.models import F

from django_lockstep.lab.explorer import Scenario
from django_lockstep.locking.retry import retry_on_conflict
from django_lockstep.locking.transactions import isolated_transaction
from tests.testapps.shop.models import Seat

Actor = Callable[[Any], Any]


def one_seat() -> int:
    return Seat.objects.create(price=100).pk


def two_seats() -> list[int]:
    return [one_seat(), one_seat()]


def price(pk: int) -> Decimal:
    return Seat.objects.get(pk=pk).price


def naive(pk: int) -> None:
    with transaction.atomic():
        value = Seat.objects.filter(pk=pk).values_list("price", flat=True)[0]
        Seat.objects.filter(pk=pk).update(price=value + 10)


def locked(pk: int) -> None:
    with transaction.atomic():
        value = Seat.objects.select_for_update().filter(pk=pk).values_list("price", flat=True)[0]
        Seat.objects.filter(pk=pk).update(price=value + 10)


@retry_on_conflict(attempts=5, wait_initial=0.0001, wait_max=0.0001)
def optimistic(pk: int) -> None:
    from django_lockstep.errors import StaleVersionError

    seat = Seat.objects.get(pk=pk)
    if not seat.update_if_unchanged(price=seat.price + 10):
        raise StaleVersionError


def computed(pk: int) -> None:
    with transaction.atomic():
        Seat.objects.filter(pk=pk).update(price=F("price") + 10)


@retry_on_conflict(attempts=5, wait_initial=0.0001, wait_max=0.0001)
def serializable(pk: int) -> None:
    with isolated_transaction(isolation_level="serializable"):
        value = Seat.objects.filter(pk=pk).values_list("price", flat=True)[0]
        Seat.objects.filter(pk=pk).update(price=value + 10)


def raised_by(amount: int) -> Callable[[int], bool]:
    return lambda pk: price(pk) == 100 + amount * 2


def raising(actor: Actor) -> Scenario:
    """Everyone raises the price of one seat by 10."""
    return Scenario(set_up=one_seat, actors=[actor] * 2, invariant=raised_by(10), observe=price)


def move(source: int, target: int) -> Actor:
    """A transfer that locks both rows by updating them in the order given."""

    def transfer(pks: list[int]) -> None:
        with transaction.atomic():
            Seat.objects.filter(pk=pks[source]).update(price=F("price") - 1)
            Seat.objects.filter(pk=pks[target]).update(price=F("price") + 1)

    return transfer


def opposite_transfers() -> Scenario:
    return Scenario(set_up=two_seats, actors=[move(0, 1), move(1, 0)], observe=lambda pks: [price(pk) for pk in pks])
