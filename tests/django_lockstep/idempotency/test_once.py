"""Work is done once for a key: by two at the same moment, after an error, after a crash at any point."""

from collections.abc import Callable
from contextlib import contextmanager
from datetime import timedelta
from decimal import Decimal
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import OperationalError, connection, transaction
from django.db.models import F

from django_lockstep.errors import ConcurrencyError
from django_lockstep.idempotency import KeyInUse, KeyReused, Once, idempotent
from django_lockstep.idempotency.models import IdempotencyKey
from django_lockstep.lab.explorer import Scenario, explore
from tests.support.sessions import Session, query
from tests.testapps.shop.models import Seat

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def seat(transactional_db: None) -> Seat:
    return Seat.objects.create(price=0)


def raised(pk: int, *, key: str = "payment-17", content: Any = None, **options: Any) -> Once:
    """Raise the price by one, once, and return how that ended."""
    with idempotent(key, scope="seats", content=content, **options) as once:
        if not once.replayed:
            Seat.objects.filter(pk=pk).update(price=F("price") + 1)
            once.result = Seat.objects.filter(pk=pk).values("price").first()
    return once


def price(seat: Seat) -> Decimal:
    return Seat.objects.get(pk=seat.pk).price


def test_a_repetition_gets_the_result_of_the_first(seat: Seat) -> None:
    assert [raised(seat.pk) for _ in range(3)] == [
        Once(replayed=False, result={"price": "1.00"}),
        Once(replayed=True, result={"price": "1.00"}),
        Once(replayed=True, result={"price": "1.00"}),
    ]
    assert not raised(seat.pk, key="payment-18").replayed
    assert price(seat) == 2


def test_an_error_leaves_the_key_unused(seat: Seat) -> None:
    for result in (ZeroDivisionError, TypeError):
        with pytest.raises(result), idempotent("payment-17", scope="seats") as once:
            Seat.objects.filter(pk=seat.pk).update(price=F("price") + 1)
            once.result = seat  # not JSON
            if result is ZeroDivisionError:
                1 / 0  # noqa: B018
    assert not IdempotencyKey.objects.exists()
    assert (raised(seat.pk).replayed, price(seat)) == (False, 1)


def test_the_callers_transaction_takes_the_key_along(seat: Seat) -> None:
    with transaction.atomic():
        raised(seat.pk)
        transaction.set_rollback(True)
    assert not raised(seat.pk).replayed


@pytest.mark.parametrize("content", [{"amount": 2}, [1], "1"])
def test_other_content_is_refused(seat: Seat, content: Any) -> None:
    raised(seat.pk, content={"amount": 1, "seat": seat})
    assert raised(seat.pk, content={"seat": seat, "amount": 1}).replayed
    assert raised(seat.pk).replayed
    with pytest.raises(KeyReused, match="'payment-17' of 'seats' was used with other content"):
        raised(seat.pk, content=content)
    assert price(seat) == 1


def test_a_result_is_forgotten_after_its_time(seat: Seat) -> None:
    raised(seat.pk, within=60)
    raised(seat.pk, key="payment-18")
    IdempotencyKey.objects.filter(key="payment-17").update(expires_at=F("created_at"))
    assert not raised(seat.pk, within=timedelta(hours=2)).replayed
    row = IdempotencyKey.objects.get(key="payment-17")
    assert timedelta(hours=2) <= row.expires_at - row.created_at < timedelta(hours=2, seconds=1)
    IdempotencyKey.objects.filter(key="payment-17").update(expires_at=F("created_at"))
    call_command("purge_idempotency_keys", stdout=(output := StringIO()))
    assert output.getvalue() == "Idempotency keys deleted: 1\n"
    assert str(IdempotencyKey.objects.get()) == "seats: payment-18"


def test_one_that_comes_while_the_first_is_at_work_is_refused_or_waits(seat: Seat, other: Session) -> None:
    with transaction.atomic():
        raised(seat.pk)
        for wait in (None, 0.01):
            with pytest.raises(KeyInUse, match=r"scope='seats', key='payment-17'") as caught:
                other.run(raised, seat.pk, wait=wait)
            assert isinstance(caught.value, ConcurrencyError)
        assert not other.run(raised, 0, key="payment-18").replayed
        waiting = other.start(raised, seat.pk, wait=20)
        other.wait_until_blocked()
    assert waiting.result() == Once(replayed=True, result={"price": "1.00"})


def test_a_snapshot_that_is_too_old_is_a_conflict(seat: Seat, other: Session) -> None:
    with pytest.raises(KeyInUse) as caught, transaction.atomic():
        query("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        query("SELECT 1")
        other.run(raised, seat.pk)
        raised(Seat.objects.create().pk)
    assert caught.value.key == "payment-17"
    assert price(seat) == 1


@pytest.mark.parametrize("name", ["", "x" * 201, "\0", 7])
def test_what_cannot_be_a_key_is_refused(seat: Seat, name: Any) -> None:
    for names in ({"key": name, "scope": "seats"}, {"key": "payment-17", "scope": name}):
        with pytest.raises(ValueError, match=r"(key|scope) must be a text of 1 to 200 characters"), idempotent(**names):
            pass


# A function


@idempotent(lambda pk, amount=1: f"seat-{pk}", scope=lambda *_, **__: "raises", within=60)
def raise_price(pk: int, amount: int = 1) -> str:
    """Raise it."""
    Seat.objects.filter(pk=pk).update(price=F("price") + amount)
    return f"by {amount}"


def test_a_function_is_called_once_for_its_arguments(seat: Seat) -> None:
    assert [raise_price(seat.pk), raise_price(pk=seat.pk)] == ["by 1", "by 1"]
    with pytest.raises(KeyReused):
        raise_price(seat.pk, 2)
    assert (price(seat), raise_price.__doc__) == (1, "Raise it.")


def test_a_function_whose_body_runs_later_is_refused() -> None:
    async def coroutine() -> None: ...

    def generator() -> Any:
        yield

    for function in (coroutine, generator):
        with pytest.raises(TypeError, match="cannot decorate the"):
            idempotent("payment-17", scope="seats")(function)


# A crash


@contextmanager
def killed(other: Session, number: int, *, after: bool) -> Any:
    """End the session at its statement of this number, COMMIT included, before or after the server has it."""
    pid, left = query("SELECT pg_backend_pid()"), [number]

    def kill_at(send: Callable[..., Any], *args: Any) -> Any:
        left[0] -= 1
        if left[0] == 0 and not after:
            other.run(query, "SELECT pg_terminate_backend(%s)", pid)
        result = send(*args)
        if left[0] == 0 and after:
            other.run(query, "SELECT pg_terminate_backend(%s)", pid)
            raise OperationalError("the answer was lost")
        return result

    commit = connection._commit  # type: ignore[attr-defined]
    connection._commit = lambda: kill_at(commit)  # type: ignore[attr-defined]
    try:
        with connection.execute_wrapper(kill_at):
            yield left
    finally:
        del connection._commit  # type: ignore[attr-defined]


@pytest.mark.parametrize("after", [False, True])
def test_a_crash_at_any_point_leaves_all_of_it_or_nothing(seat: Seat, other: Session, after: bool) -> None:
    number, left = 0, [0]
    while left[0] <= 0:
        number += 1
        IdempotencyKey.objects.all().delete()
        Seat.objects.update(price=0)
        try:
            with killed(other, number, after=after) as left:
                raised(seat.pk)
        except OperationalError:
            connection.close()
            assert price(seat) == IdempotencyKey.objects.count()
        assert raised(seat.pk).result == {"price": "1.00"}
        assert price(seat) == 1
    assert number == 7  # lock, look, update, get, insert, COMMIT; the seventh was not sent


# A race


def with_a_marker(pk: int) -> None:
    if not Seat.objects.filter(pk=pk, guest="paid").exists():
        Seat.objects.filter(pk=pk).update(guest="paid", price=F("price") + 1)


@pytest.mark.parametrize(("work", "verdict"), [(with_a_marker, "broken"), (raised, "holds")])
def test_two_at_once_do_it_once(work: Any, verdict: str) -> None:
    race = explore(
        Scenario(
            set_up=lambda: Seat.objects.create(price=0).pk,
            actors=[work, work],
            invariant=lambda pk: Seat.objects.get(pk=pk).price == 1,
        ),
        raises=(KeyInUse,),
    )
    assert race.verdict == verdict, race.reason
