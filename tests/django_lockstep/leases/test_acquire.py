"""One holder a key, by the database's clock; tokens rise and never return; a refusal writes nothing. Blocks, too."""

from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.core.management import BaseCommand, CommandError, call_command
from django.db import connection, transaction
from django.db.transaction import TransactionManagementError
from django.test.utils import CaptureQueriesContext

from django_lockstep.lab.pytest_plugin import RaceFixture
from django_lockstep.leases import LeaseHandle, LeaseLost, LeaseNotAcquired, assert_held, exclusive, guard, lease
from django_lockstep.leases.models import Lease
from django_lockstep.leases.stores import store_on
from django_lockstep.leases.testing import expire, steal
from django_lockstep.stores.terms import Claim, claim
from tests.django_lockstep.leases.holding import acquired, purge
from tests.support.sessions import Session, query

pytestmark = pytest.mark.django_db(transaction=True)


def test_keys_do_not_know_each_other() -> None:
    assert all(Lease.objects.acquire(key, 60) for key in ("a", "A", "ä", "a ", "%s {x} 'q' \\"))


def test_who_is_not_named_has_a_name_of_host_process_thread_and_chance(other: Session) -> None:
    owners = [getattr(Lease.objects.acquire(key, 60), "owner", "") for key in "ab"]
    owners.append(other.run(Lease.objects.acquire, "c", 60).owner)  # type: ignore[union-attr]
    assert len({tuple(owner.split(":")[:3]) for owner in owners}) == 2
    assert len(set(owners)) == 3


# Tokens


@pytest.mark.parametrize(
    "end",
    [
        lambda handle: handle.release(),
        lambda handle: expire("k"),
        lambda handle: Lease.objects.filter(key="k").force_release(),
        lambda handle: purge(),
        lambda handle: call_command("flush", interactive=False, verbosity=0),
    ],
    ids=["release", "expiry", "force", "purge", "flush"],
)
def test_a_token_never_returns(end: Callable[[Any], Any]) -> None:
    first = acquired()
    end(first)
    assert acquired().token > first.token


def test_a_token_does_not_return_with_a_rollback() -> None:
    with transaction.atomic():
        first = attempt_inside(claim("k", 60))
        transaction.set_rollback(True)
    assert attempt_inside(claim("k", 60)).token > first.token


def attempt_inside(request: Claim) -> Any:
    """Attempt on this connection, whatever is open there."""
    return store_on().take_here(request)


# Refusals


def test_a_refusal_has_no_transaction_id_and_is_one_round_trip(other: Session) -> None:
    other.run(Lease.objects.acquire, "k", 60)
    with transaction.atomic(), CaptureQueriesContext(connection) as captured:
        refusal = attempt_inside(claim("k", 60))
        assert query("SELECT pg_current_xact_id_if_assigned() IS NULL")
    assert refusal.key == "k"
    assert len(captured) == 2


# What is refused before any SQL


@pytest.mark.parametrize(
    ("key", "ttl", "options", "said"),
    [
        ("", 60, {}, "key must have 1 to 255 characters, not 0"),
        ("k" * 256, 60, {}, "key must have 1 to 255 characters, not 256"),
        ("a\0b", 60, {}, "key must not contain NUL"),
        ("\ud800", 60, {}, "surrogate"),
        (7, 60, {}, "key must be a string, not 7"),
        ("k", 0, {}, "ttl must be finite and greater than zero, not 0"),
        ("k", float("inf"), {}, "ttl must be finite"),
        ("k", 1e12, {}, "ttl must be at most 3155760000 seconds"),
        ("k", 60, {"owner": "a\0"}, "owner must not contain NUL"),
        ("k", "60", {}, "ttl must be a timedelta or a number of seconds, not '60'"),
        ("k", 60, {"owner": ""}, "owner must have 1 to 255 characters"),
        ("k", 60, {"wait": -1}, "wait must be finite and at least zero, not -1"),
        ("k", 60, {"at_least": 0}, "at_least must be finite and greater than zero"),
        ("k", 60, {"data": {"a": "\0"}}, "data must not contain NUL"),
        ("k", 60, {"data": float("nan")}, "Out of range"),
        ("k", 60, {"data": object()}, "not JSON serializable"),
    ],
)
def test_what_is_wrong_is_named(key: Any, ttl: Any, options: dict[str, Any], said: str) -> None:
    with CaptureQueriesContext(connection) as captured, pytest.raises((TypeError, ValueError), match=said):
        Lease.objects.acquire(key, ttl, **options)
    assert not captured.captured_queries


@pytest.mark.parametrize(
    "call",
    [
        lambda handle: handle.refresh(1e12),
        lambda handle: handle.watch(print, margin=1e12),
        lambda handle: handle.guard(within=1e12),
        lambda handle: guard("k", handle.token, within=1e12),
        lambda handle: lease("k", 60, wait=1e12),
        lambda handle: lease("k", 60, margin=1e12),
        lambda handle: Lease.objects.all().ended(1e12),
        lambda handle: Lease.objects.purge(1e12),
    ],
)
def test_nothing_takes_longer_than_a_century(handle: LeaseHandle, call: Callable[[LeaseHandle], object]) -> None:
    with (
        transaction.atomic(),
        CaptureQueriesContext(connection) as captured,
        pytest.raises(ValueError, match="must be at most 3155760000 seconds"),
    ):
        call(handle)
    assert not captured.captured_queries


def test_a_century_is_taken() -> None:
    handle = acquired(ttl=3_155_760_000, at_least=3_155_760_000)
    handle.refresh()
    assert handle.release()
    assert Lease.objects.holder("k")


def test_255_characters_of_any_kind_are_a_key() -> None:
    key = "😀" * 255
    assert Lease.objects.acquire(key, 60)
    assert Lease.objects.holder(key)
    assert Lease.objects.acquire(key, 60) is None


def test_inside_a_transaction_it_is_refused() -> None:
    refused = pytest.raises(TransactionManagementError, match="outside of transactions, but one is open on .*'default'")
    with transaction.atomic(), CaptureQueriesContext(connection) as captured, refused:
        Lease.objects.acquire("k", 60)
    assert not captured.captured_queries


def test_without_autocommit_it_is_refused() -> None:
    transaction.set_autocommit(False)
    try:
        with pytest.raises(TransactionManagementError):
            Lease.objects.acquire("k", 60)
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)


# Answers that were lost


def test_an_acquire_whose_answer_was_lost_is_found_again() -> None:
    request = claim("k", 60)
    first, second = store_on().take(request), store_on().take(request)
    assert (first.token, first.since) == (second.token, second.since)  # type: ignore[union-attr]


def test_a_name_that_was_given_may_be_somebody_elses() -> None:
    Lease.objects.acquire("k", 60, owner="worker")
    assert Lease.objects.acquire("k", 60, owner="worker") is None


def test_a_broken_connection_is_replaced(other: Session) -> None:
    pid = query("SELECT pg_backend_pid()")
    other.run(query, "SELECT pg_terminate_backend(%s)", pid)
    assert Lease.objects.acquire("k", 60)


def test_a_heartbeat_that_comes_in_between_does_not_stop_a_robber(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = acquired()
    beats = iter([handle.refresh])

    def expire_before_a_beat(key: str) -> None:
        expire(key)
        next(beats, lambda: None)()

    monkeypatch.setattr("django_lockstep.leases.testing.expire", expire_before_a_beat)
    assert steal("k").token > handle.token


# Every interleaving of an old holder's write with a takeover


def take(handle: LeaseHandle) -> bool:
    return Lease.objects.acquire("k", 60) is not None


def refresh(handle: LeaseHandle) -> bool:
    try:
        handle.refresh()
    except LeaseLost:
        return False
    return True


@pytest.mark.parametrize("first", [take, refresh])
def test_an_expired_lease_is_taken_or_refreshed_once(race: RaceFixture, first: Callable[[LeaseHandle], bool]) -> None:
    exploration = race(first, take, set_up=expired, invariant=lambda handle: Lease.objects.holder("k") is not None)
    assert all(list(outcome.results.values()).count("True") == 1 for outcome in exploration.outcomes)


def expired() -> LeaseHandle:
    handle = acquired()
    expire("k")
    return handle


# Blocks and functions that run only while nobody else holds the key


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


# Async


@exclusive("job-{number}", ttl=60, skip=True)
async def job(number: int) -> str:
    assert await Lease.objects.aholder(f"job-{number}")
    return f"did {number}"


def test_from_async_code() -> None:
    async def story() -> list[Any]:
        async with lease("k", ttl=60) as handle:
            await handle.arefresh(120)
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
