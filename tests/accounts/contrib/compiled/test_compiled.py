"""When the compiled statements are used, and when they are not."""

import itertools
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from django.db import OperationalError, connection, connections, transaction
from django.db.models.signals import post_save
from django.test.utils import CaptureQueriesContext

from accounts.contrib.compiled.obstacles import obstacles
from accounts.contrib.compiled.runner import runner_for
from accounts.models import Account, Entry
from accounts.reconciliation import chain_breaks
from accounts.strategies import STRATEGIES
from django_lockstep.errors import ConcurrencyError, StaleVersionError
from django_lockstep.lab.explorer import Scenario, explore
from tests.support.factories import AccountFactory, UserFactory
from tests.support.sessions import Session, heard
from tests.testapps.purses.models import Audited, Closable, Elsewhere, Premium, Purse, PurseEntry

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _compiled(settings: Any) -> None:
    settings.ACCOUNTS_ENGINE = "compiled"


def sent_by(change: Callable[[], object]) -> list[str]:
    with CaptureQueriesContext(connection) as captured:
        change()
    return [entry["sql"] for entry in captured]


def test_a_deposit_is_one_statement(account: Account) -> None:
    (sql,) = sent_by(lambda: Account.deposit(account.pk, 5))
    assert "FOR NO KEY UPDATE" in sql
    assert "UPDATE" in sql
    assert "INSERT" in sql


def test_a_try_is_one_statement_whether_it_works_or_not(account: Account) -> None:
    stale = Account.objects.get(pk=account.pk)
    assert len(sent_by(lambda: account.try_deposit(5))) == 1
    # The second one asks whether the row is gone or was changed.
    assert len(sent_by(lambda: stale.try_deposit(5))) == 2


def test_in_a_transaction_the_method_runs_between_savepoints(account: Account) -> None:
    with transaction.atomic():
        sent = sent_by(lambda: Account.deposit(account.pk, 5))
    assert [sql.split()[0] for sql in sent] == ["SAVEPOINT", "SELECT", "UPDATE", "INSERT", "RELEASE"]


def test_where_autocommit_is_off_it_joins_the_open_transaction(account: Account) -> None:
    connection.set_autocommit(False)
    try:
        Account.deposit(account.pk, 5)
        account.try_deposit(5)
        connection.rollback()
    finally:
        connection.set_autocommit(True)
    account.refresh_from_db()
    assert (account.balance, Entry.objects.count()) == (100, 0)


def test_a_failed_statement_in_a_transaction_leaves_it_usable(account: Account, other: Session) -> None:
    with other.holding(Account.objects.lock, account.pk), transaction.atomic():
        with pytest.raises(OperationalError):
            Account.deposit(account.pk, 5, nowait=True)
        assert Account.objects.get(pk=account.pk).balance == 100


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (Audited, ["overrides record()", "overrides save()", "Audited.place is selected by an expression"]),
        (Closable, ["has its own manager"]),
        (Premium, ["has its columns in several tables"]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_a_project_changed_is_left_to_the_query_set_api(model: Any, why: list[str]) -> None:
    assert runner_for(model, "default") is None
    told = obstacles(model, "default")
    assert [any(words in sentence for sentence in told) for words in why] == [True] * len(why)


@pytest.mark.parametrize("model", [Account, Purse, Elsewhere])
def test_other_names_keys_and_columns_are_no_obstacle(model: Any) -> None:
    assert obstacles(model, "default") == []


def test_other_databases_are_left_to_the_query_set_api(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections["default"], "vendor", "sqlite")
    assert obstacles(Account, "default") == ["Database 'default' is not PostgreSQL with psycopg 3."]


def test_the_methods_run_as_they_are_written_unless_a_setting_asks_for_this(settings: Any) -> None:
    del settings.ACCOUNTS_ENGINE
    account = AccountFactory.create(balance=100)
    sent = sent_by(lambda: Account.deposit(account.pk, 5))
    assert [sql.split()[0] for sql in sent] == ["BEGIN", "SELECT", "UPDATE", "INSERT", "COMMIT"]


def test_receivers_of_signals_are_called_for_new_entries(account: Account) -> None:
    with heard(post_save, Entry) as messages:
        Account.deposit(account.pk, 5)
        account.refresh_from_db()
        account.try_deposit(7)
    assert [message["instance"].amount for message in messages] == [5, 7]


@pytest.mark.parametrize("bank", [Purse, *STRATEGIES.values()], ids=["methods", *STRATEGIES])
def test_accounts_with_names_of_their_own(bank: Any) -> None:
    bank = bank if bank is Purse else bank.bound(model=Purse)
    purse = Purse.objects.create(user=UserFactory.create(), code=UUID(int=5), note="kept")
    opened_at = purse.updated_at
    returned: Any = bank.deposit(purse.pk, "10.50")
    bank.withdraw(purse.pk, 3)
    purse.refresh_from_db()
    assert (returned.balance, returned.note, purse.balance, purse.version) == (
        Decimal("10.50"),
        "kept",
        Decimal("7.50"),
        3,
    )
    assert purse.updated_at > opened_at
    entries = PurseEntry.objects.values_list("amount", "balance_after", "version_after", "channel")
    assert list(entries) == [(Decimal("10.50"), Decimal("10.50"), 2, "web"), (Decimal(-3), Decimal("7.50"), 3, "web")]


def test_a_key_may_come_as_text() -> None:
    purse = Purse.objects.create(user=UserFactory.create())
    assert Purse.deposit(str(purse.pk), 5).pk == purse.pk
    assert Purse.deposit(purse.pk.hex, 5).balance == 10


def test_what_is_returned_holds_what_a_query_set_would_give() -> None:
    purse = Purse.objects.create(user=UserFactory.create(), wishes={"window": True})
    returned: Any = Purse.deposit(purse.pk, 5)
    assert returned.wishes == {"window": True}
    returned.note = "seen"
    returned.save()
    assert Purse.objects.get().wishes == {"window": True}


def test_those_who_wait_are_served_in_order_of_arrival(open_session: Callable[[], Session], account: Account) -> None:
    holder, waiting = open_session(), [open_session() for _ in range(4)]
    with holder.holding(Account.objects.lock, account.pk):
        ends = []
        for number, session in enumerate(waiting, start=1):
            ends.append(session.start(Account.deposit, account.pk, number))
            session.wait_until_blocked()
    assert [end.result().version for end in ends] == [2, 3, 4, 5]
    assert not list(chain_breaks(Account))


def test_who_has_the_row_does_not_wait_for_the_queue(other: Session, account: Account) -> None:
    with transaction.atomic():
        Account.objects.lock(account.pk)
        waiting = other.start(Account.deposit, account.pk, 1)
        other.wait_until_blocked()
        Account.deposit(account.pk, 2)
    assert waiting.result().version == 3


def test_every_order_of_statements_ends_right() -> None:
    def withdraw_optimistically(pk: int) -> None:
        if not Account.objects.get(pk=pk).try_withdraw(80):
            raise StaleVersionError(model=Account, pk=pk)

    moves = [
        lambda pk: Account.withdraw(pk, 80) and None,
        lambda pk: Account.deposit(pk, 5, nowait=True) and None,
        withdraw_optimistically,
    ]
    for pair in itertools.combinations(moves, 2):
        scenario = Scenario(set_up=lambda: AccountFactory.create(balance=200).pk, actors=list(pair))
        result = explore(scenario, raises=ConcurrencyError)
        assert result.verdict == "holds", result.reason
