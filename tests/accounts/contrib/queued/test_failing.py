"""A change that the database refuses is set aside with its error, and everything else is decided."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import connection, transaction
from django.db.models.signals import pre_save
from django.test import Client

from accounts.contrib.queued.consuming import apply_batch, drain
from accounts.contrib.queued.errors import ChangeFailed
from accounts.contrib.queued.models import QueuedChange
from accounts.errors import InsufficientFunds
from accounts.models import Account, Entry
from accounts.reconciliation import chain_breaks
from tests.accounts.contrib.queued.test_admin import row_of
from tests.support.factories import AccountFactory

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("engine")]

State = QueuedChange.State


@pytest.fixture
def rule() -> Any:
    """Return a function that puts a rule of the project's own on a table, until the test ends."""
    added: list[str] = []

    def add(sql: str, remove: str) -> None:
        execute(sql)
        added.append(remove)

    yield add
    for remove in added:
        execute(remove)


def execute(sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)


@pytest.fixture
def no_seven(rule: Callable[[str, str], None]) -> None:
    """Entries of 7 are not allowed."""
    rule(
        "ALTER TABLE accounts_entry ADD CONSTRAINT no_seven CHECK (amount <> 7)",
        "ALTER TABLE accounts_entry DROP CONSTRAINT no_seven",
    )


@pytest.fixture
def no_seven_at_commit(rule: Callable[[str, str], None]) -> None:
    """Entries of 7 are not allowed, and the database says so at COMMIT."""
    execute(
        "CREATE FUNCTION no_seven() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'not 7' USING ERRCODE = 'P0007'; END $$"
    )
    rule(
        "CREATE CONSTRAINT TRIGGER no_seven AFTER INSERT ON accounts_entry DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW WHEN (NEW.amount = 7) EXECUTE FUNCTION no_seven()",
        "DROP FUNCTION no_seven() CASCADE",
    )


def states() -> list[str]:
    return list(QueuedChange.objects.values_list("state", flat=True))


def booked(account: Account) -> list[int]:
    return [int(entry.amount) for entry in Entry.objects.filter(account=account)]


@pytest.mark.usefixtures("no_seven")
def test_the_others_are_decided_also_of_the_same_account() -> None:
    account, other = AccountFactory.create(), AccountFactory.create()
    changes = [QueuedChange.deposit(account.pk, amount) for amount in (1, 7, 2)]
    covered_by_it = QueuedChange.withdraw(account.pk, 10)
    transfer = QueuedChange.transfer(account.pk, other.pk, 3)
    elsewhere = QueuedChange.deposit(other.pk, 5)
    assert drain(QueuedChange) == 6
    assert (booked(account), booked(other)) == ([1, 2, -3], [3, 5])
    assert [changes[0].wait().balance_after, changes[2].wait().balance_after] == [1, 3]
    assert (transfer.wait().balance_after, elsewhere.wait().balance_after) == (0, 8)
    with pytest.raises(InsufficientFunds):
        covered_by_it.wait()
    assert QueuedChange.objects.get(state=State.FAILED) == changes[1]
    assert not list(chain_breaks(Account))


@pytest.mark.usefixtures("no_seven")
def test_a_batch_that_was_refused_is_not_sent_again_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    account, sizes, apply_many = AccountFactory.create(), list[int](), Account.apply_many
    for amount in (1, 7, 2, 3):
        QueuedChange.deposit(account.pk, amount)

    def counted(changes: list[Any], **options: Any) -> Any:
        sizes.append(len(changes))
        return apply_many(changes, **options)

    monkeypatch.setattr(Account, "apply_many", counted)
    assert apply_batch(QueuedChange) == 4
    assert sizes == [4, 2, 1, 1, 2]
    assert booked(account) == [1, 2, 3]


@pytest.mark.usefixtures("no_seven")
def test_who_waits_gets_what_the_database_said(caplog: pytest.LogCaptureFixture) -> None:
    change = QueuedChange.deposit(AccountFactory.create().pk, 7)
    with caplog.at_level(logging.ERROR, logger="accounts.queued"):
        drain(QueuedChange)
    with pytest.raises(ChangeFailed, match='violates check constraint "no_seven"') as caught:
        change.wait()
    error = caught.value
    assert (error.cause, error.sqlstate, error.constraint) == ("IntegrityError", "23514", "no_seven")
    assert "Failing row" not in str(error)
    assert [record.args[1] for record in caplog.records if isinstance(record.args, tuple)] == [change.pk]


@pytest.mark.usefixtures("no_seven_at_commit")
def test_a_change_that_is_refused_at_commit_fails_too() -> None:
    account = AccountFactory.create()
    for amount in (1, 7, 2):
        QueuedChange.deposit(account.pk, amount)
    assert apply_batch(QueuedChange) == 3
    assert states() == [State.APPLIED, State.FAILED, State.APPLIED]
    assert booked(account) == [1, 2]


def test_a_change_that_the_projects_code_refuses_fails_too() -> None:
    account = AccountFactory.create()

    def refuse(instance: Entry, **_: Any) -> None:
        if instance.amount == 7:
            raise ValidationError("not 7")

    pre_save.connect(refuse, sender=Entry)
    try:
        change = QueuedChange.deposit(account.pk, 7)
        QueuedChange.deposit(account.pk, 1)
        drain(QueuedChange)
    finally:
        pre_save.disconnect(refuse, sender=Entry)
    assert booked(account) == [1]
    with pytest.raises(ChangeFailed, match="not 7") as caught:
        change.wait()
    assert (caught.value.cause, caught.value.sqlstate) == ("ValidationError", None)


@pytest.mark.usefixtures("no_seven")
def test_in_a_transaction_of_the_callers_it_goes_the_same_way() -> None:
    account = AccountFactory.create()
    for amount in (7, 1):
        QueuedChange.deposit(account.pk, amount, idempotency_key=f"k{amount}")
    with transaction.atomic():
        assert apply_batch(QueuedChange) == 2
    assert states() == [State.FAILED, State.APPLIED]
    assert booked(account) == [1]


@pytest.mark.usefixtures("no_seven")
def test_a_failed_change_is_kept_and_can_be_retried(admin_client: Client) -> None:
    account = AccountFactory.create()
    change = QueuedChange.deposit(account.pk, 7)
    drain(QueuedChange)
    row = row_of(admin_client, change)
    assert row["state"] == "failed"
    assert "no_seven" in row["outcome"]
    QueuedChange.objects.update(decided_at="2020-01-01T00:00Z")
    assert QueuedChange.objects.purge(1) == 0
    execute("ALTER TABLE accounts_entry DROP CONSTRAINT no_seven, ADD CONSTRAINT no_seven CHECK (amount <> 8)")
    assert QueuedChange.objects.retry_failed() == 1
    drain(QueuedChange)
    assert QueuedChange.objects.get().wait().balance_after == 7


def test_a_transient_error_makes_no_change_fail(rule: Callable[[str, str], None]) -> None:
    account = AccountFactory.create()
    QueuedChange.deposit(account.pk, 7)
    execute(
        "CREATE FUNCTION not_now() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'not now' USING ERRCODE = 'deadlock_detected'; END $$"
    )
    rule(
        "CREATE TRIGGER not_now BEFORE INSERT ON accounts_entry FOR EACH ROW EXECUTE FUNCTION not_now()",
        "DROP FUNCTION not_now() CASCADE",
    )
    with pytest.raises(Exception, match="deadlock"):
        apply_batch(QueuedChange)
    assert states() == [State.PENDING]
