"""The library's context managers decorate functions whose body runs inside of them, and refuse the others."""

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from django.db import connection

from django_lockstep.editing import writing
from django_lockstep.leases import exclusive
from django_lockstep.locking import ignore_versions, isolated_transaction, retry_on_conflict
from django_lockstep.locking.conf import without_retry_waits
from tests.testapps.shop.models import Seat

BLOCKS: dict[str, Callable[[], Any]] = {
    "isolated_transaction": isolated_transaction,
    "ignore_versions": lambda: ignore_versions(Seat),
    "writing": lambda: writing(1),
    "without_retry_waits": without_retry_waits,
}


def rows() -> Iterator[int]:
    yield 1


async def later() -> AsyncIterator[int]:
    yield 1


async def coroutine() -> int:
    return 1


@pytest.mark.parametrize("name", BLOCKS)
def test_what_runs_after_the_call_is_refused_when_it_is_decorated(name: str) -> None:
    for function, kind in ((rows, "generator"), (later, "generator"), (coroutine, "coroutine")):
        with pytest.raises(TypeError, match=rf"@{name} cannot decorate the {kind} function {function.__name__}\(\)"):
            BLOCKS[name]()(function)


@pytest.mark.parametrize(
    "decorate",
    [retry_on_conflict, retry_on_conflict(attempts=2), exclusive("nightly", ttl=60)],
    ids=["retry_on_conflict", "retry_on_conflict with options", "exclusive"],
)
def test_a_generator_is_refused_where_a_coroutine_is_not(decorate: Callable[[Any], Any]) -> None:
    for function in (rows, later):
        with pytest.raises(TypeError, match=rf"cannot decorate the generator function {function.__name__}\(\)"):
            decorate(function)


@pytest.mark.django_db(transaction=True)
def test_a_function_has_a_block_of_its_own_for_each_call() -> None:
    @isolated_transaction(isolation_level="serializable")
    def level(*, deeper: bool) -> list[str]:
        with connection.cursor() as cursor:
            cursor.execute("SHOW transaction_isolation")
            return [*cursor.fetchone(), *([] if not deeper else [connection.in_atomic_block])]

    assert level(deeper=False) == ["serializable"]
    assert level(deeper=True) == ["serializable", True]
    assert not connection.in_atomic_block
