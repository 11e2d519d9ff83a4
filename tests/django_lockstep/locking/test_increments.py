"""Eight processes add one to the same row, 100 times each: the sum is 800, whatever way each of them takes."""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest
from django.db import connection

from django_lockstep.locking import StaleVersionError, retry_on_conflict
from tests.support.processes import processes
from tests.testapps.shop.models import Seat

WORKERS, TIMES = 8, 100

pytestmark = pytest.mark.django_db(transaction=True)

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


@pytest.fixture(scope="module")
def pool(django_db_setup: None) -> Iterator[ProcessPoolExecutor]:
    with processes(WORKERS) as pool:
        yield pool


@pytest.mark.parametrize(
    "ways",
    [
        ["update_if_unchanged"],
        ["save"],
        ["update_fields"],
        ["save", "sql"],
        ["update_if_unchanged", "save", "update_fields", "sql"],
    ],
    ids="+".join,
)
def test_no_increment_is_lost(pool: ProcessPoolExecutor, ways: list[str]) -> None:
    seat = Seat.objects.create(price=0)
    ends = [pool.submit(increment, ways[worker % len(ways)], seat.pk, TIMES) for worker in range(WORKERS)]
    assert sum(end.result() for end in ends) == WORKERS * TIMES
    seat.refresh_from_db()
    assert (seat.price, seat.version) == (WORKERS * TIMES, WORKERS * TIMES + 1)
