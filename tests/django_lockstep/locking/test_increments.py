"""Eight processes add one to the same row, 100 times each: the sum is 800, whatever way each of them takes."""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest

from tests.django_lockstep.locking.increments import increment
from tests.support.processes import processes
from tests.testapps.shop.models import Seat

WORKERS, TIMES = 8, 100


pytestmark = pytest.mark.django_db(transaction=True)


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
