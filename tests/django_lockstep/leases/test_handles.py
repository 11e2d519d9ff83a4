"""What a holder may do, until it no longer holds."""

import gc
import os
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import pytest
from django.db import OperationalError, connection, transaction
from django.db.transaction import TransactionManagementError
from django.test.utils import CaptureQueriesContext

from django_lockstep.leases import LeaseHandle, LeaseLost, LeaseTimedOut
from django_lockstep.leases.models import Lease
from django_lockstep.leases.postgresql import PostgresLeases
from django_lockstep.leases.testing import steal
from django_lockstep.stores.terms import claim
from tests.django_lockstep.leases.holding import acquired, holder_of, lock_rows
from tests.support.sessions import Session, is_as_it_was, query, until

pytestmark = pytest.mark.django_db(transaction=True)


def row() -> Lease:
    lease: Lease = Lease.objects.get(key="k")
    return lease


# Refresh


@pytest.mark.parametrize("taken", [steal, lambda key: Lease.objects.filter(key=key).force_release()])
def test_a_refresh_of_what_was_taken_says_so_every_time(handle: LeaseHandle, taken: Callable[[str], object]) -> None:
    taken("k")
    before = row()
    for _ in range(2):
        with pytest.raises(LeaseLost, match="Lease 'k' is lost: ") as caught:
            handle.refresh()
    assert (caught.value.key, caught.value.token) == ("k", handle.token)
    assert (row().token, row().expires_at) == (before.token, before.expires_at)
    assert handle.remaining == 0


def test_a_refresh_never_shortens(handle: LeaseHandle) -> None:
    handle.refresh(91)
    handle.refresh(1)
    assert handle.remaining > 89


# Release


def test_a_released_handle_is_of_no_more_use(handle: LeaseHandle) -> None:
    handle.release()
    for use in (handle.refresh, handle.check, handle.__enter__):
        with pytest.raises(LeaseLost, match="it was released"):
            use()


def test_what_json_cannot_hold_is_not_noted(handle: LeaseHandle) -> None:
    with CaptureQueriesContext(connection) as sent, pytest.raises(TypeError):
        handle.note(object())
    assert not sent.captured_queries


def test_at_least_does_not_lengthen_a_late_release() -> None:
    handle = acquired(at_least=600)
    Lease.objects.update(acquired_at=row().acquired_at - (row().expires_at - row().acquired_at) * 20)
    handle.release()
    assert Lease.objects.acquire("k", 60)


# Blocks


def test_the_block_releases_and_its_exception_comes_out_unchanged(handle: LeaseHandle) -> None:
    error = KeyError("mine")
    with pytest.raises(KeyError) as caught, handle:
        raise error
    assert caught.value is error
    assert error.__context__ is None
    assert Lease.objects.holder("k") is None


@pytest.mark.parametrize("block_error", [KeyError, None], ids=["a block that failed", "one that succeeded"])
def test_a_release_that_fails_is_logged_and_changes_nothing_of_the_blocks_end(
    handle: LeaseHandle,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    block_error: type[Exception] | None,
) -> None:
    def fail() -> bool:
        raise OperationalError("no server")

    monkeypatch.setattr(handle, "release", fail)
    with pytest.raises(block_error) if block_error else nullcontext(), handle:
        if block_error:
            raise block_error
    assert "could not be released and will expire" in caplog.text


def test_a_release_inside_a_transaction_stays_an_error(handle: LeaseHandle) -> None:
    with transaction.atomic(), pytest.raises(TransactionManagementError):
        handle.__enter__().__exit__(None, None, None)


# Deadlines


def test_remaining_ends_before_the_database_lets_others_in(handle: LeaseHandle) -> None:
    assert handle.remaining < holder_of("k").remaining


def test_check_raises_when_the_own_deadline_has_passed(monkeypatch: pytest.MonkeyPatch, handle: LeaseHandle) -> None:
    handle.check()
    later = time.monotonic() + 60
    monkeypatch.setattr(time, "monotonic", lambda: later)
    with pytest.raises(LeaseLost, match="not refreshed in time"):
        handle.check()


# Transactions and timeouts


@pytest.mark.parametrize("verb", ["refresh", "release"])
def test_inside_a_transaction_it_is_refused(handle: LeaseHandle, verb: str) -> None:
    with transaction.atomic(), pytest.raises(TransactionManagementError):
        getattr(handle, verb)()
    assert Lease.objects.holder("k")


def test_no_statement_takes_longer_than_half_a_beat(other: Session) -> None:
    handle = acquired(ttl=6.0)
    with other.holding(lock_rows), pytest.raises(LeaseTimedOut) as caught:
        handle.refresh()
    assert caught.value.sqlstate == "57014"
    handle.refresh()


@pytest.mark.parametrize("verb", ["refresh", "release"])
def test_a_wait_that_the_session_limits_is_a_timeout_too(handle: LeaseHandle, other: Session, verb: str) -> None:
    with other.holding(lock_rows), session_with(lock_timeout="1ms"), pytest.raises(LeaseTimedOut) as caught:
        getattr(handle, verb)()
    assert caught.value.sqlstate == "55P03"
    assert Lease.objects.holder("k")
    getattr(handle, verb)()


def test_the_sessions_own_settings_stay(handle: LeaseHandle) -> None:
    handle.refresh()
    handle.release()
    assert is_as_it_was("statement_timeout")
    assert is_as_it_was("synchronous_commit")


@pytest.mark.parametrize(
    ("limit", "level", "is_enough"),
    [
        ("1s", "read committed", True),
        ("10s", "read committed", True),
        ("11s", "read committed", False),
        ("0", "read committed", False),
        ("1s", "repeatable read", False),
        ("1s", "serializable", False),
    ],
)
def test_a_session_with_the_right_settings_is_sent_none(limit: str, level: str, is_enough: bool) -> None:
    with session_with(statement_timeout=limit, default_transaction_isolation=level):
        with CaptureQueriesContext(connection) as sent:
            assert acquired(ttl=600).release()
        acquired("other").refresh()
        question, *verbs = (entry["sql"] for entry in sent)
        assert "current_setting" in question
        assert ["SET LOCAL" in sql for sql in verbs] == [not is_enough] * 2


def test_the_right_settings_are_those_for_this_ttl() -> None:
    with session_with(statement_timeout="1s"):
        Lease.objects.acquire("k", 60)
        for number, (ttl, is_enough) in enumerate([(60, True), (3, False), (60, True)]):
            with CaptureQueriesContext(connection) as sent:
                assert Lease.objects.acquire(f"k{number}", ttl)
            assert ["SET LOCAL" in entry["sql"] for entry in sent] == [not is_enough]


def test_settings_that_are_no_longer_right_are_noticed_once() -> None:
    with session_with(statement_timeout="1s"):
        Lease.objects.acquire("k", 60)
        query("SELECT set_config('statement_timeout', '0', false)")
        for number, statements in enumerate([2, 1]):
            with CaptureQueriesContext(connection) as sent:
                assert Lease.objects.acquire(f"k{number}", 60)
            assert len(sent) == statements


@contextmanager
def session_with(**settings: str) -> Iterator[None]:
    """Let a session of its own have these settings."""
    connection.close()
    for name, value in settings.items():
        query("SELECT set_config(%s, %s, false)", name, value)
    yield
    connection.close()


def test_only_the_commit_of_a_release_is_not_waited_for(handle: LeaseHandle) -> None:
    store, levels = PostgresLeases("default"), []
    renew, release = (getattr(verb, "__wrapped__") for verb in (PostgresLeases.renew, PostgresLeases.release))  # noqa: B009
    query("SELECT set_config('synchronous_commit', 'remote_apply', false)")
    for verb in (
        lambda: store.take_here(claim("other", 60)),
        lambda: renew(store, "k", handle.token, ttl=60),
        lambda: release(store, "k", handle.token),
    ):
        with transaction.atomic():
            assert verb()
            levels.append(query("SHOW synchronous_commit"))
        assert query("SHOW synchronous_commit") == "remote_apply"
    assert levels == ["remote_apply", "remote_apply", "off"]
    connection.close()


def test_it_works_with_parameters_bound_by_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    connection.close()
    options = {"server_side_binding": True, "prepare_threshold": 0}
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", connection.settings_dict["OPTIONS"] | options)
    handle = acquired(data={"percent": "100%"})
    handle.refresh()
    assert holder_of("k").data == {"percent": "100%"}
    assert handle.release()
    connection.close()


def test_a_handle_that_nobody_has_is_gone() -> None:
    # Time and again: where another thread is at it, gc.collect() returns at once and has done nothing.
    reference = weakref.ref(acquired())
    until(lambda: gc.collect() >= 0 and reference() is None, "the handle to be collected")


# Processes


def test_a_forked_process_does_not_hold_it(handle: LeaseHandle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert handle.release() is False
    for use in (handle.refresh, handle.check, handle.guard):
        with pytest.raises(LeaseLost, match="from which this one was forked"):
            use()
    monkeypatch.undo()
    assert handle.release() is True


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_process_leaves_the_block_without_a_release(handle: LeaseHandle) -> None:
    with handle:
        child = os.fork()
        if child == 0:
            handle.__exit__(None, None, None)
            os._exit(0)
        os.waitpid(child, 0)
        handle.refresh()
