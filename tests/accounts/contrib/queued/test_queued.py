"""The queue: what is appended is applied once, in order, or refused, by any consumer.

The strategies' suite has more.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from threading import Event
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction

from accounts.contrib.queued.consuming import apply_batch, drain, run
from accounts.contrib.queued.errors import StillQueued
from accounts.contrib.queued.models import QueuedChange
from accounts.errors import IdempotencyKeyReused, InsufficientFunds, InvalidAmount
from accounts.models import Account, Entry
from accounts.reconciliation import chain_breaks
from tests.accounts.contrib.queued.programs import killed_before
from tests.support.factories import AccountFactory
from tests.support.processes import processes
from tests.support.sessions import Session, all_others_are_idle, until

pytestmark = pytest.mark.django_db(transaction=True)

State = QueuedChange.State


def states() -> list[str]:
    return list(QueuedChange.objects.values_list("state", flat=True))


def booked(account: Account) -> list[int]:
    return [int(entry.amount) for entry in Entry.objects.filter(account=account)]


# Appended.


def test_appending_is_one_statement_and_waits_for_no_lock(other: Session, django_assert_num_queries: Any) -> None:
    account = AccountFactory.create()
    with transaction.atomic():
        Account.objects.select_for_update().get(pk=account.pk)
        change = other.run(QueuedChange.deposit, account.pk, 5)
    with django_assert_num_queries(1):
        QueuedChange.deposit(account.pk, 6)
    assert (change.state, booked(account)) == (State.PENDING, [])
    assert drain(QueuedChange) == 2
    assert booked(account) == [5, 6]


def test_what_is_rolled_back_was_never_appended() -> None:
    account = AccountFactory.create()
    with transaction.atomic():
        QueuedChange.deposit(account.pk, 5)
        transaction.set_rollback(True)
    assert (drain(QueuedChange), booked(account)) == (0, [])


def test_a_key_appends_once() -> None:
    account = AccountFactory.create()
    first = QueuedChange.deposit(account.pk, 5, idempotency_key="k")
    assert QueuedChange.deposit(account.pk, "5.00", idempotency_key="k") == first
    drain(QueuedChange)
    assert QueuedChange.deposit(account.pk, 5, idempotency_key="k").wait().balance_after == 5
    with pytest.raises(IdempotencyKeyReused) as caught:
        QueuedChange.withdraw(account.pk, 5, idempotency_key="k")
    assert (caught.value.recorded, booked(account)) == (5, [5])


def test_a_transfers_key_belongs_to_its_target() -> None:
    source, target, elsewhere = (AccountFactory.create(balance=10) for _ in range(3))
    first = QueuedChange.transfer(source.pk, target.pk, 5, idempotency_key="k")
    assert QueuedChange.transfer(source.pk, target.pk, 5, idempotency_key="k") == first
    with pytest.raises(IdempotencyKeyReused) as caught:
        QueuedChange.transfer(source.pk, elsewhere.pk, 5, idempotency_key="k")
    assert (caught.value.idempotency_key, caught.value.recorded) == ("k", -5)
    drain(QueuedChange)
    assert (booked(source), booked(target), booked(elsewhere)) == ([-5], [5], [])


@pytest.mark.parametrize("target", [None, 0])
def test_an_unknown_account_is_refused_at_once(target: int | None) -> None:
    account = AccountFactory.create()
    with pytest.raises(Account.DoesNotExist):
        QueuedChange.deposit(0, 1) if target is None else QueuedChange.transfer(account.pk, target, 1)
    assert states() == []


# What it came to.


def test_changes_apply_in_order_and_refusals_do_not_stop_others() -> None:
    account, other = AccountFactory.create(), AccountFactory.create()
    withdrawal = QueuedChange.withdraw(account.pk, 10)
    QueuedChange.deposit(account.pk, 15)
    QueuedChange.deposit(other.pk, 1)
    last = QueuedChange.withdraw(account.pk, 10)
    assert apply_batch(QueuedChange) == 4
    assert states() == [State.REFUSED, State.APPLIED, State.APPLIED, State.APPLIED]
    assert booked(account) == [15, -10]
    with pytest.raises(InsufficientFunds, match="not enough for 10.00") as caught:
        withdrawal.wait()
    assert (caught.value.balance, caught.value.amount) == (0, 10)
    assert (last.wait().balance_after, last.version_after, last.replayed) == (5, 3, False)
    assert not list(chain_breaks(Account))


def test_a_transfer_is_applied_whole_or_not_at_all() -> None:
    poor, full = AccountFactory.create(balance=10), AccountFactory.create(balance="99999999999999999.00")
    changes = [QueuedChange.transfer(poor.pk, full.pk, 5), QueuedChange.transfer(full.pk, poor.pk, 3)]
    late = QueuedChange.withdraw(poor.pk, 13)
    drain(QueuedChange)
    with pytest.raises(InvalidAmount, match="digits before the point"):
        changes[0].wait()
    assert (changes[1].wait().balance_after, late.wait().balance_after) == (99999999999999996, 0)
    assert len(set(Entry.objects.exclude(transfer=None).values_list("transfer", flat=True))) == 1


def test_what_the_account_did_before_is_left_out() -> None:
    account, other = AccountFactory.create(balance=10), AccountFactory.create()
    Account.deposit(account.pk, 5, idempotency_key="k")
    Account.transfer(account.pk, other.pk, 2, idempotency_key="t")
    Account.deposit(account.pk, 1, idempotency_key="used")
    again = QueuedChange.deposit(account.pk, 5, idempotency_key="k")
    moved = QueuedChange.transfer(account.pk, other.pk, 2, idempotency_key="t")
    reused = QueuedChange.deposit(account.pk, 7, idempotency_key="used")
    drain(QueuedChange)
    assert (again.wait().replayed, again.balance_after, moved.wait().replayed) == (True, 15, True)
    with pytest.raises(IdempotencyKeyReused) as caught:
        reused.wait()
    assert (caught.value.recorded, caught.value.idempotency_key) == (1, "used")
    assert booked(other) == [2]


def test_the_change_of_an_account_that_is_gone_is_refused() -> None:
    account, gone = AccountFactory.create(), AccountFactory.create()
    change = QueuedChange.deposit(gone.pk, 1, idempotency_key="k")
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM accounts_account WHERE id = %s", [gone.pk])
    QueuedChange.deposit(account.pk, 1)
    assert drain(QueuedChange) == 2
    with pytest.raises(Account.DoesNotExist):
        change.wait()
    assert booked(account) == [1]


@pytest.fixture
def gone_target(other: Session) -> QueuedChange:
    """A transfer to an account that was deleted while the transfer was being appended."""
    source, target = AccountFactory.create(balance=10), AccountFactory.create()
    other.begin()
    change = other.run(QueuedChange.transfer, source.pk, target.pk, 5)
    target.delete()
    other.end()
    return change


def test_a_transfer_to_a_deleted_account_is_refused_by_the_consumer(gone_target: QueuedChange) -> None:
    later = QueuedChange.deposit(gone_target.account_id, 1)
    assert apply_batch(QueuedChange) == 2
    with pytest.raises(Account.DoesNotExist):
        gone_target.wait()
    assert later.wait().balance_after == 11


def test_changes_of_accounts_that_are_gone_do_not_fill_the_queue(gone_target: QueuedChange) -> None:
    gone = AccountFactory.create()
    changes = [gone_target, QueuedChange.deposit(gone.pk, 1)]
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM accounts_account WHERE id = %s", [gone.pk])
    last = QueuedChange.deposit(AccountFactory.create().pk, 1)
    assert [apply_batch(QueuedChange, size=1) for _ in range(3)] == [1, 1, 1]
    for change in changes:
        with pytest.raises(Account.DoesNotExist):
            change.wait()
    assert last.wait().balance_after == 1


def test_an_account_whose_deletion_is_not_committed_is_not_gone(other: Session) -> None:
    source, target = AccountFactory.create(balance=10), AccountFactory.create()
    change = QueuedChange.transfer(source.pk, target.pk, 5)
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM accounts_account WHERE id = %s", [target.pk])
        assert other.run(apply_batch, QueuedChange) == 0
        transaction.set_rollback(True)
    assert apply_batch(QueuedChange) == 1
    assert change.wait().balance_after == 5


def test_who_waits_gets_the_answer_or_his_time_is_over(other: Session) -> None:
    account = AccountFactory.create()
    change = QueuedChange.deposit(account.pk, 5)
    with pytest.raises(StillQueued, match=f"pk={change.pk}"):
        change.wait(0.01)
    waiting = other.start(change.wait)
    drain(QueuedChange)
    assert waiting.result().balance_after == 5


# Consumers.


def test_a_second_consumer_takes_other_accounts_and_breaks_no_order(other: Session) -> None:
    here, there = AccountFactory.create(), AccountFactory.create()
    for amount in (1, 2):
        QueuedChange.deposit(here.pk, amount)
    with transaction.atomic():
        assert apply_batch(QueuedChange, size=1) == 1
        other.run(QueuedChange.deposit, here.pk, 3)
        other.run(QueuedChange.deposit, there.pk, 4)
        assert other.run(apply_batch, QueuedChange) == 1
    assert (booked(here), booked(there)) == ([1], [4])
    drain(QueuedChange)
    assert booked(here) == [1, 2, 3]


def test_who_drains_waits_for_accounts_that_others_hold(other: Session) -> None:
    account = AccountFactory.create()
    QueuedChange.deposit(account.pk, 1)
    with transaction.atomic():
        Account.deposit(account.pk, 2)
        draining = other.start(drain, QueuedChange)
        other.wait_until_blocked()
    assert draining.result() == 1
    assert booked(account) == [2, 1]


def test_a_change_behind_a_transfer_that_has_to_wait_stays_behind(other: Session) -> None:
    source, target = AccountFactory.create(balance=10), AccountFactory.create()
    QueuedChange.transfer(source.pk, target.pk, 10)
    QueuedChange.deposit(source.pk, 1)
    with transaction.atomic():
        Account.objects.select_for_update().get(pk=target.pk)
        assert other.run(apply_batch, QueuedChange) == 0
    drain(QueuedChange)
    assert (booked(source), booked(target)) == ([-10, 1], [10])


def test_many_consumers_lose_and_double_nothing(open_session: Callable[[], Session]) -> None:
    pks = [AccountFactory.create(balance=10).pk for _ in range(3)]
    for number in range(60):
        QueuedChange.transfer(pks[number % 3], pks[(number + 1) % 3], 1)
        QueuedChange.deposit(pks[number % 3], number + 1)
    ends = [open_session().start(drain, QueuedChange, size=7) for _ in range(4)]
    assert sum(end.result() for end in ends) == 120
    assert set(states()) == {State.APPLIED}
    assert sum(Account.objects.values_list("balance", flat=True)) == 30 + sum(range(61))
    for index, pk in enumerate(pks):
        deposits = Entry.objects.filter(account=pk, transfer=None).values_list("amount", flat=True)
        assert list(deposits) == [number + 1 for number in range(60) if number % 3 == index]
    assert not list(chain_breaks(Account))


def test_a_consumer_that_dies_at_any_point_loses_and_doubles_nothing() -> None:
    account = AccountFactory.create()
    survived = False
    for statement in range(1, 20):
        QueuedChange.deposit(account.pk, statement)
        with processes(1) as pool, suppress(BrokenProcessPool):
            survived = pool.submit(killed_before, statement, size=100).result() < statement
        if survived:
            break
        until(all_others_are_idle, "the server to have noticed")
        assert set(states()) == {State.PENDING}
        assert booked(account) == []
    assert statement > 4
    assert booked(account) == list(range(1, statement + 1))
    assert set(states()) == {State.APPLIED}


def test_a_database_without_weaker_locks_takes_the_stronger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection.features, "has_select_for_no_key_update", False)
    account = AccountFactory.create()
    change = QueuedChange.deposit(account.pk, 5)
    assert drain(QueuedChange) == 1
    assert change.wait().balance_after == 5


def test_it_runs_until_it_is_asked_to_stop(other: Session) -> None:
    account, stop = AccountFactory.create(), Event()
    running = other.start(run, QueuedChange, stop, linger=0.01, poll=0.01)
    assert QueuedChange.deposit(account.pk, 5).wait().balance_after == 5
    stop.set()
    assert running.result() == 1


# The command.


def test_once_applies_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    account = AccountFactory.create()
    for _ in range(5):
        QueuedChange.deposit(account.pk, 1)
    call_command("apply_queued", "--once", "--batch-size", "2")
    assert capsys.readouterr().out == "Changes decided: 5\n"
    assert booked(account) == [1] * 5


def test_sigterm_ends_it_gracefully() -> None:
    account = AccountFactory.create()
    script = (
        "import sys, django; django.setup()\n"
        "from django.core.management import call_command\n"
        "from django.db import connection\n"
        "connection.settings_dict['NAME'] = sys.argv[1]\n"
        "call_command('apply_queued', '--poll', '0.01')\n"
    )
    command = [sys.executable, "-c", script, connection.settings_dict["NAME"]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ.copy()) as consumer:
        QueuedChange.deposit(account.pk, 5).wait(60)
        consumer.send_signal(signal.SIGTERM)
        assert consumer.communicate(timeout=60)[0] == "Changes decided: 1\n"
    assert consumer.returncode == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--batch-size", "0"], "must be a positive integer"),
        (["--linger", "-1"], "must be a .*number of seconds"),
        (["--poll", "soon"], "must be a .*number of seconds"),
        (["--model", "accounts.Account"], "not a subclass of AbstractQueuedChange"),
        (["--model", "no.Such"], "no such model"),
    ],
)
def test_wrong_usage_is_refused(options: list[str], message: str) -> None:
    with pytest.raises(CommandError, match=message):
        call_command("apply_queued", "--once", *options)
