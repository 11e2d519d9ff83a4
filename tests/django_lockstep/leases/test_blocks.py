"""Blocks and functions that run only while nobody else holds the key."""

from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.core.management import BaseCommand, CommandError, call_command

from django_lockstep.leases import LeaseHandle, LeaseLost, LeaseNotAcquired, assert_held, exclusive, lease
from django_lockstep.leases.models import Lease
from django_lockstep.leases.testing import steal
from tests.support.sessions import Session

pytestmark = pytest.mark.django_db(transaction=True)


def holds(key: str) -> bool:
    return Lease.objects.holder(key) is not None


def test_it_can_be_used_again_but_not_inside_itself() -> None:
    block = lease("k", ttl=60)
    for _ in range(2):
        with block:
            with pytest.raises(RuntimeError, match="enter its handle instead"):
                block.__enter__()
            assert holds("k")


@exclusive("bill-{customer}-{month[0]}", ttl=60)
def bill(customer: int, *, month: tuple[int, ...] = (1,)) -> str:
    assert holds(f"bill-{customer}-{month[0]}")
    return f"billed {customer}"


def test_the_key_is_made_of_the_arguments() -> None:
    assert bill(7) == bill(customer=7) == "billed 7"
    with lease("bill-7-2", ttl=60):
        assert bill(7) == "billed 7"
        with pytest.raises(LeaseNotAcquired):
            bill(7, month=(2,))


def test_a_refusal_inside_the_function_is_the_functions_own() -> None:
    @exclusive("outer", ttl=60, skip=True)
    def nested() -> None:
        with lease("inner", ttl=60), lease("inner", ttl=60):
            pytest.fail("must not run")

    with pytest.raises(LeaseNotAcquired, match="inner"):
        nested()


@pytest.mark.parametrize("key", ["{order}", "{}", "{0}"])
def test_a_template_names_parameters_only(key: str) -> None:
    with pytest.raises(ValueError, match="which is not a parameter"):
        exclusive(key, ttl=60)(bill)


def test_deep_inside_it_can_be_asserted() -> None:
    with pytest.raises(LeaseLost, match="Lease 'k' is not held here"):
        assert_held("k")
    with lease("k", 60) as outer, lease("another", 60):
        assert assert_held("k") is outer
        with outer:
            assert assert_held("k") is outer
        assert assert_held("k") is outer
    with pytest.raises(LeaseLost):
        assert_held("k")


def test_what_is_lost_is_not_held() -> None:
    with lease("k", 60) as handle:
        steal("k")
        with pytest.raises(LeaseLost):
            handle.refresh()
        with pytest.raises(LeaseLost, match="another holder took it"):
            assert_held("k")


def test_another_thread_has_its_own_blocks(other: Session) -> None:
    with lease("k", 60), pytest.raises(LeaseLost):
        other.run(assert_held, "k")


def test_a_task_holds_what_its_block_holds() -> None:
    async def story() -> str:
        async with lease("k", 60) as handle:
            assert assert_held("k") is handle
            assert await sync_to_async(assert_held)("k") is handle
        with pytest.raises(LeaseLost):
            assert_held("k")
        return "done"

    assert async_to_sync(story)() == "done"


def test_a_key_that_nobody_has_held_can_be_refused() -> None:
    with pytest.raises(LeaseNotAcquired, match="was never held"):
        lease("k", 60, only_if_exists=True).__enter__()


# Async


@exclusive("job-{number}", ttl=60, skip=True)
async def job(number: int) -> str:
    assert await Lease.objects.aholder(f"job-{number}")
    return f"did {number}"


def test_from_async_code() -> None:
    async def story() -> list[Any]:
        async with lease("k", ttl=60) as handle:
            await handle.arefresh(120)
            await handle.aensure(130)
            with pytest.raises(LeaseNotAcquired):
                await lease("k", ttl=60).__aenter__()
            refused = await Lease.objects.aacquire("k", 60, wait=0.01)
        acquired = await Lease.objects.aacquire("k", 60, wait=1)
        assert isinstance(acquired, LeaseHandle)
        return [refused, await acquired.arelease(), await acquired.arelease(), await job(3)]

    assert async_to_sync(story)() == [None, True, False, "did 3"]


@pytest.mark.django_db(transaction=False)
def test_in_a_transaction_of_a_test_all_of_it_works() -> None:
    with lease("k", ttl=60) as handle:
        handle.refresh()
        handle.guard()
        assert bill(7) == "billed 7"
        assert Lease.objects.acquire("k", 60, wait=0.01) is None
    assert not holds("k")


# Management commands


class Decorated(BaseCommand):
    requires_system_checks: list[str] = []

    @exclusive("job", ttl=60)
    def handle(self, *args: object, **options: object) -> None:
        with lease("another", ttl=60):
            self.stdout.write("ran")


@pytest.mark.parametrize("key", ["job", "another"])
def test_a_command_ends_with_a_sentence_and_75(key: str, capsys: pytest.CaptureFixture[str]) -> None:
    with lease(key, ttl=60, owner="ada"), pytest.raises(SystemExit) as ended:
        Decorated().run_from_argv(["manage.py", "decorated"])
    assert ended.value.code == 75
    output, errors = capsys.readouterr()
    assert errors.startswith(f"LeaseNotAcquired: Lease '{key}' has been held by ada since ")
    assert (errors.count("\n"), output) == (1, "")


def test_so_does_one_that_is_called(capsys: pytest.CaptureFixture[str]) -> None:
    with lease("job", ttl=60, owner="ada"), pytest.raises(CommandError) as refused:
        call_command(Decorated())
    assert refused.value.returncode == 75
    call_command(Decorated())
    assert capsys.readouterr().out == "ran\n"
