"""What a simulation leaves behind: nothing."""

from decimal import Decimal

import pytest
from django.contrib.auth import get_user_model
from django.db import IntegrityError, connection, transaction

from accounts.models import Account, Entry
from accounts.races.fixture import Fixture, PurgeError, new_name
from accounts.strategies import STRATEGIES
from tests.support.factories import AccountFactory
from tests.support.sessions import Session

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def fixture() -> Fixture:
    return Fixture.make(Account, using="default", name=new_name())


def used(fixture: Fixture) -> int:
    (pk,) = fixture.open_accounts(1, balance=Decimal(100), overdraft_limit=Decimal(0))
    for _ in range(3):
        STRATEGIES["pessimistic"].deposit(pk, 1)
    return int(pk)


@pytest.mark.parametrize("batch", [20_000, 2], ids=["at once", "in batches"])
def test_everything_of_its_own_is_removed(fixture: Fixture, batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accounts.races.fixture._BATCH", batch)
    used(fixture)
    fixture.purge()
    assert not Account.objects.exists()
    assert not Entry.objects.exists()
    assert not get_user_model().objects.exists()


def test_rows_of_others_stay_and_stay_protected(fixture: Fixture) -> None:
    theirs = AccountFactory.create()
    STRATEGIES["pessimistic"].deposit(theirs.pk, 1)
    used(fixture)
    fixture.purge()
    assert Entry.objects.get().account_id == theirs.pk
    with pytest.raises(IntegrityError, match="append-only"), connection.cursor() as cursor:
        cursor.execute("DELETE FROM accounts_entry")


def test_no_trigger_no_trouble(fixture: Fixture) -> None:
    used(fixture)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("ALTER TRIGGER accounts_append_only ON accounts_entry RENAME TO another_name")
        cursor.execute("ALTER TABLE accounts_entry DISABLE TRIGGER another_name")
        fixture.purge()
        transaction.set_rollback(True)
    fixture.purge()
    assert not Entry.objects.exists()


@pytest.mark.slow
def test_who_is_in_the_way_is_not_waited_for_long(fixture: Fixture, other: Session) -> None:
    pk = used(fixture)
    other.begin()
    other.run(STRATEGIES["pessimistic"].deposit, pk, 1)
    with pytest.raises(PurgeError, match="lock timeout"):
        fixture.purge()
    other.end()
    fixture.purge()
    assert not Entry.objects.exists()
