"""What was decided long ago is deleted, what is pending never; no key that was applied is applied again."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.db.models import F
from django.test.utils import CaptureQueriesContext

from accounts.contrib.queued.consuming import drain
from accounts.contrib.queued.models import QueuedChange
from accounts.errors import IdempotencyKeyReused, InsufficientFunds
from accounts.models import Account, Entry
from tests.support.factories import AccountFactory
from tests.support.sessions import Session

pytestmark = pytest.mark.django_db(transaction=True)

DAY = timedelta(days=1)


def decided(*changes: QueuedChange, days: int = 0) -> None:
    """Let consumers decide about everything, and these be as old."""
    drain(QueuedChange)
    rows = QueuedChange.objects.filter(pk__in=[change.pk for change in changes])
    rows.update(decided_at=F("decided_at") - days * DAY)


@pytest.fixture
def manage(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def call(*args: str) -> str:
        call_command("purge_queued", *args)
        return capsys.readouterr().out

    return call


def test_it_deletes_what_was_decided_long_ago(manage: Callable[..., str], account: Account) -> None:
    applied, refused = QueuedChange.deposit(account.pk, 1), QueuedChange.withdraw(account.pk, 500)
    decided(applied, refused, days=31)
    decided(recent := QueuedChange.deposit(account.pk, 2), days=29)
    pending = QueuedChange.deposit(account.pk, 3)
    QueuedChange.objects.filter(pk=pending.pk).update(queued_at="2020-01-01T00:00Z", decided_at="2020-01-01T00:00Z")
    assert manage("--older-than", "30d", "--dry-run") == "Changes that would be deleted: 2\n"
    assert QueuedChange.objects.count() == 4
    assert manage("--older-than", "30d") == "Changes deleted: 2\n"
    assert list(QueuedChange.objects.all()) == [recent, pending]
    assert Entry.objects.count() == 2


@pytest.mark.parametrize(("size", "transactions"), [("2", 3), ("5", 1), ("1000", 1)])
def test_a_transaction_deletes_no_more_than_asked(
    manage: Callable[..., str], account: Account, size: str, transactions: int
) -> None:
    decided(*[QueuedChange.deposit(account.pk, 1) for _ in range(5)], days=2)
    with CaptureQueriesContext(connection) as captured:
        assert manage("--older-than", "1d", "--batch-size", size) == "Changes deleted: 5\n"
    assert len([entry for entry in captured if entry["sql"].startswith("DELETE")]) == transactions


def test_what_a_set_of_changes_leaves_out_stays(account: Account) -> None:
    changes = [QueuedChange.deposit(account.pk, amount) for amount in (1, 2, 3)]
    decided(*changes, days=2)
    chosen = QueuedChange.objects.filter(account__user=account.user).exclude(pk=changes[1].pk)
    assert chosen.purge(DAY, size=1) == 2
    assert list(QueuedChange.objects.all()) == [changes[1]]


def test_it_skips_rows_that_another_session_has_locked(account: Account, other: Session) -> None:
    held, free = (QueuedChange.deposit(account.pk, 1) for _ in range(2))
    decided(held, free, days=2)
    with transaction.atomic():
        QueuedChange.objects.select_for_update().get(pk=held.pk)
        assert other.run(QueuedChange.objects.purge, DAY) == 1
    assert QueuedChange.objects.purge(DAY) == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: QueuedChange.objects.purge(0), "older_than must be finite and greater than zero, not 0"),
        (lambda: QueuedChange.objects.purge(DAY, size=0), "size must be a positive integer, not 0"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--older-than", "0d"], "must be a duration such as 90s"),
        (["--older-than", "999999999999w"], "the duration is too long"),
        (["--older-than", "1d", "--batch-size", "0"], "must be a positive integer"),
        (["--older-than", "1d", "--model", "accounts.Account"], "not a subclass of AbstractQueuedChange"),
        (["--older-than", "1d", "--model", "no.Such"], "no such model"),
    ],
)
def test_wrong_usage_is_refused(options: list[str], message: str) -> None:
    with pytest.raises(CommandError, match=message):
        call_command("purge_queued", *options)


# Keys.


def purged(change: Any) -> None:
    decided(change, days=2)
    assert QueuedChange.objects.purge(DAY) == 1


def test_an_applied_key_gives_the_same_result_after_the_purge(account: Account) -> None:
    purged(QueuedChange.deposit(account.pk, 5, idempotency_key="k"))
    Account.deposit(account.pk, 1)
    again = QueuedChange.deposit(account.pk, 5, idempotency_key="k")
    drain(QueuedChange)
    assert (again.wait().replayed, again.balance_after) == (True, 105)
    assert Entry.objects.filter(idempotency_key="k").count() == 1


def test_an_applied_key_is_refused_to_another_change_when_that_is_decided(account: Account) -> None:
    purged(QueuedChange.deposit(account.pk, 5, idempotency_key="k"))
    other = QueuedChange.withdraw(account.pk, 5, idempotency_key="k")
    drain(QueuedChange)
    with pytest.raises(IdempotencyKeyReused):
        other.wait()


def test_a_transfers_key_is_refused_to_a_transfer_elsewhere(account: Account) -> None:
    target, elsewhere = AccountFactory.create(), AccountFactory.create()
    purged(QueuedChange.transfer(account.pk, target.pk, 5, idempotency_key="k"))
    same = QueuedChange.transfer(account.pk, target.pk, 5, idempotency_key="k")
    purged(same)
    other = QueuedChange.transfer(account.pk, elsewhere.pk, 5, idempotency_key="k")
    drain(QueuedChange)
    with pytest.raises(IdempotencyKeyReused) as caught:
        other.wait()
    assert (caught.value.idempotency_key, caught.value.recorded) == ("k", -5)
    assert [Account.objects.get(pk=pk).balance for pk in (account.pk, target.pk, elsewhere.pk)] == [95, 5, 0]


def test_a_refused_key_is_forgotten_with_its_row(account: Account) -> None:
    refused = QueuedChange.withdraw(account.pk, 500, idempotency_key="k")
    purged(refused)
    Account.deposit(account.pk, 400)
    again = QueuedChange.withdraw(account.pk, 500, idempotency_key="k")
    drain(QueuedChange)
    assert again.wait().balance_after == 0


def test_until_it_is_purged_a_refused_key_stays_refused(account: Account) -> None:
    decided(QueuedChange.withdraw(account.pk, 500, idempotency_key="k"), days=2)
    Account.deposit(account.pk, 400)
    with pytest.raises(InsufficientFunds):
        QueuedChange.withdraw(account.pk, 500, idempotency_key="k").wait()


def test_who_repeats_a_key_while_its_row_is_purged_appends_anew(account: Account, other: Session) -> None:
    first = QueuedChange.deposit(account.pk, 5, idempotency_key="k")
    decided(first, days=2)
    with transaction.atomic():
        QueuedChange.objects.purge(DAY)
        again = other.start(QueuedChange.deposit, account.pk, 5, idempotency_key="k")
        other.wait_until_blocked()
    assert again.result().pk != first.pk
    drain(QueuedChange)
    assert again.result().wait().replayed is True


def test_waiting_for_a_purged_change_raises(account: Account) -> None:
    change = QueuedChange.deposit(account.pk, 5)
    purged(change)
    with pytest.raises(QueuedChange.DoesNotExist):
        change.wait()
