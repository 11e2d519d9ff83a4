"""What a simulation leaves behind: nothing."""

import pickle
from decimal import Decimal

import pytest
from django.contrib.auth import get_user_model
from django.db import IntegrityError, connection, transaction

from accounts.models import Account, Entry
from accounts.races.ground import Ground, PurgeError
from accounts.races.remains import new_name
from accounts.strategies import STRATEGIES
from tests.support.factories import AccountFactory
from tests.support.sessions import Session

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def ground() -> Ground:
    return Ground.make(Account, using="default", name=new_name())


def used(ground: Ground) -> int:
    (pk,) = ground.open_accounts(1, balance=Decimal(100), overdraft_limit=Decimal(0))
    for _ in range(3):
        STRATEGIES["pessimistic"].deposit(pk, 1)
    return int(pk)


def test_accounts_begin_as_asked(ground: Ground) -> None:
    keys = ground.open_accounts(3, balance=Decimal(5), overdraft_limit=Decimal(7))
    rows = Account.objects.filter(pk__in=keys).values_list("balance", "overdraft_limit", "version", "user")
    assert list(rows) == [(Decimal(5), Decimal(7), 1, ground.user.pk)] * 3


def test_nobody_can_log_in_as_its_user(ground: Ground) -> None:
    assert ground.user.get_username().startswith("simulate-")
    assert not ground.user.has_usable_password()


@pytest.mark.parametrize("batch", [20_000, 2], ids=["at once", "in batches"])
def test_everything_of_its_own_is_removed(ground: Ground, batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accounts.races.ground._BATCH", batch)
    used(ground)
    ground.purge()
    assert not Account.objects.exists()
    assert not Entry.objects.exists()
    assert not get_user_model().objects.exists()


def test_rows_of_others_stay_and_stay_protected(ground: Ground) -> None:
    theirs = AccountFactory.create()
    STRATEGIES["pessimistic"].deposit(theirs.pk, 1)
    used(ground)
    ground.purge()
    assert Entry.objects.get().account_id == theirs.pk
    with pytest.raises(IntegrityError, match="append-only"), connection.cursor() as cursor:
        cursor.execute("DELETE FROM accounts_entry")


def test_no_trigger_no_trouble(ground: Ground) -> None:
    used(ground)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("ALTER TRIGGER accounts_entry_append_only ON accounts_entry RENAME TO another_name")
        cursor.execute("ALTER TABLE accounts_entry DISABLE TRIGGER another_name")
        ground.purge()
        transaction.set_rollback(True)
    ground.purge()
    assert not Entry.objects.exists()


def test_who_is_in_the_way_is_not_waited_for_long(ground: Ground, other: Session) -> None:
    pk = used(ground)
    other.begin()
    other.run(STRATEGIES["pessimistic"].deposit, pk, 1)
    with pytest.raises(PurgeError, match="lock timeout"):
        ground.purge()
    other.end()
    ground.purge()
    assert not Entry.objects.exists()


def test_it_travels_to_other_processes(ground: Ground) -> None:
    copy = pickle.loads(pickle.dumps(ground))  # noqa: S301 - our own words
    assert (copy.model, copy.using, copy.user) == (Account, "default", ground.user)
