"""Ways to add one to a number, for worker processes to do many times."""

from django.db import connection

from django_lockstep.locking import StaleVersionError, retry_on_conflict
from tests.testapps.shop.models import Seat

patiently = retry_on_conflict(attempts=10_000, wait_initial=0.001, wait_max=0.05)


@patiently
def by_update_if_unchanged(pk: int) -> None:
    seat = Seat.objects.get(pk=pk)
    if not seat.update_if_unchanged(price=seat.price + 1):
        raise StaleVersionError


@patiently
def by_save(pk: int) -> None:
    seat = Seat.objects.get(pk=pk)
    seat.price += 1
    seat.save()


@patiently
def by_update_fields(pk: int) -> None:
    seat = Seat.objects.get(pk=pk)
    seat.price += 1
    seat.save(update_fields=["price"])


def by_sql(pk: int) -> None:
    """As another program would, which has never heard of versions."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE shop_seat SET price = price + 1 WHERE id = %s", [pk])


WAYS = {
    "update_if_unchanged": by_update_if_unchanged,
    "save": by_save,
    "update_fields": by_update_fields,
    "sql": by_sql,
}


def increment(way: str, pk: int, times: int) -> int:
    """Add one, many times."""
    for _ in range(times):
        WAYS[way](pk)
    return times
