"""Which database is written to: the one that is named, whatever the project's routers say."""

from typing import Any

import pytest

from accounts.batches import BalanceChange
from accounts.models import Account, Entry
from accounts.reconciliation import chain_breaks
from accounts.strategies import STRATEGIES
from tests.support.factories import AccountFactory

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("engine")]


class Elsewhere:
    """Sends every write to a database that there is not; as Django's documentation has it, it looks at no hints."""

    def db_for_write(self, model: type[Any], **hints: Any) -> str:
        return "nowhere"


@pytest.fixture
def pks(settings: Any) -> list[Any]:
    pks = [AccountFactory.create(balance=100).pk for _ in range(2)]
    settings.DATABASE_ROUTERS = [Elsewhere()]
    return pks


@pytest.mark.parametrize("options", [{}, {"idempotency_key": "k"}, {"timeout": 5}], ids=str)
def test_pessimistic_changes(pks: list[Any], options: dict[str, Any]) -> None:
    source, target = pks
    for _ in range(2):  # the second time its key was used before
        Account.deposit(source, 5, using="default", **options)
    Account.transfer(source, target, 10, idempotency_key="t", using="default")
    Account.transfer(source, target, 10, idempotency_key="t", using="default")
    paid = 100 + (5 if "idempotency_key" in options else 10)
    assert [Account.objects.get(pk=pk).balance for pk in pks] == [paid - 10, 110]
    assert not list(chain_breaks(Account, using="default"))


class Primary:
    """Sends every write to the default database, wherever the row was read."""

    def db_for_write(self, model: type[Any], **hints: Any) -> str:
        return "default"


def test_an_account_read_from_a_replica_is_written_to_the_primary(account: Account, settings: Any) -> None:
    settings.DATABASE_ROUTERS = [Primary()]
    account._state.db = "replica"
    assert account.try_deposit(5, idempotency_key="k")
    account._state.db = "replica"
    assert account.try_withdraw(1)
    Account.deposit(account.pk, 1)
    account._state.db = "replica"
    assert not account.try_withdraw(1)
    account.refresh_from_db()  # from the primary: a replica may not have the other writer's version yet
    assert account.try_withdraw(1)
    assert account.balance == 104


@pytest.mark.parametrize("name", STRATEGIES)
def test_strategies(pks: list[Any], name: str) -> None:
    strategy = STRATEGIES[name].bound(using="default")
    strategy.deposit(pks[0], 5)
    strategy.transfer(pks[0], pks[1], 10)
    assert [Account.objects.get(pk=pk).balance for pk in pks] == [95, 110]
    assert not list(chain_breaks(Account, using="default"))


def test_batches(pks: list[Any]) -> None:
    Account.apply_many([BalanceChange(pks[0], -5, "k"), (pks[1], 5)], using="default")
    assert [Account.objects.get(pk=pk).balance for pk in pks] == [95, 105]
    assert Entry.objects.count() == 2
