"""Changes of the code that are tried as remedies."""

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from django_lockstep.lab.finder.confirm.forks import Fork
from django_lockstep.lab.finder.confirm.remedies import REMEDIES, try_lock, try_patches
from django_lockstep.lab.finder.derive.candidates import KINDS
from django_lockstep.lab.finder.record.recording import RecordedStatement, Site
from tests.django_lockstep.lab.finder.test_findings import candidate
from tests.testapps.seeded_shop.racing import services
from tests.testapps.seeded_shop.racing.models import Basket, Payment, Subscription, Wallet

pytestmark = pytest.mark.django_db(transaction=True)


SOURCE = """
from django.db import transaction
from tests.testapps.seeded_shop.racing.models import Wallet

@transaction.atomic
def spend(pk):
    wallet = {query}(pk=pk)
    wallet.balance -= 30
    wallet.save()

class Queries:
    @property
    def wallets(self):
        return self

    def get(self, pk):
        return Wallet.objects.get(pk=pk)

queries = Queries()
"""


@pytest.mark.parametrize(
    ("query", "helps"),
    # What only looks like a query set has no select_for_update(): the change ends in an error in every order.
    [("Wallet.objects.get", True), ("queries.wallets.get", False)],
)
def test_a_change_helps_only_if_the_code_still_works(
    query: str, helps: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"purse_{helps}"
    (tmp_path / f"{name}.py").write_text(SOURCE.format(query=query))
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module(name)
    pk = Wallet.objects.create(balance=100).pk
    fork = Fork(dict.fromkeys("AB", lambda fixture: module.spend(pk)))
    exploration = fork.explore(seconds=20)
    assert exploration.failure
    accesses = {
        which: RecordedStatement(site=Site(path=f"{name}.py", line=line, function="spend"), sql="")
        for which, line in {"read": 7, "write": 9}.items()
    }
    race = candidate("a", kind="read-modify-write", table="racing_wallet", **accesses)
    diff, text = try_patches(race, exploration.failure, fork, exploration=exploration)
    # Another candidate of the fork that asks for the same change does not try it again.
    race = replace(race, id="b")
    with patch.object(Fork, "explore") as explore:
        assert try_patches(race, exploration.failure, fork, exploration=exploration) == (diff, text)
    assert not explore.called

    assert bool(diff) == text.endswith(" end as serial orders do") == helps
    assert ("select_for_update" in diff) == helps


def test_each_kind_has_a_remedy() -> None:
    assert REMEDIES.keys() == KINDS.keys()


# A row that is locked before everything


def tried(actor: Any, table: str) -> str:
    """Explore the actor with itself, and return what helped."""
    fork = Fork({"A": actor, "B": actor})
    exploration = fork.explore(seconds=20)
    assert exploration.verdict == "broken", exploration.reason
    assert exploration.failure
    return try_lock(candidate("a", table=table), exploration.failure, fork, exploration=exploration)


def spend(pk: int) -> None:
    wallet = Wallet.objects.get(pk=pk)
    wallet.balance -= 30
    wallet.save()


def test_the_row_that_is_read() -> None:
    pk = Wallet.objects.create(balance=100).pk
    assert tried(lambda fixture: spend(pk), "racing_wallet").startswith(
        f"with the row {pk} of racing.Wallet locked first, in the same transaction, "
    )


def test_the_row_that_new_ones_belong_to() -> None:
    subscription = Subscription.objects.create(customer="Ada", paid_until="2026-03-01")

    assert f"with the row {subscription.pk} of racing.Subscription locked first" in tried(
        lambda fixture: services.renew(subscription.pk, "pay_1"), Payment._meta.db_table
    )


def test_where_there_is_no_such_row_nothing_has_helped() -> None:
    def look_and_insert(fixture: object) -> bool:
        if Basket.objects.filter(status="merged").exists():
            return False
        Basket.objects.create(status="merged")
        return True

    assert tried(look_and_insert, Basket._meta.db_table) == ""


def test_candidates_of_one_fork_that_come_to_the_same_row_try_it_once() -> None:
    pk = Wallet.objects.create(balance=100).pk
    spent = []

    def counted(fixture: object) -> None:
        spend(pk)
        spent.append(pk)

    fork = Fork({"A": counted, "B": counted})
    exploration = fork.explore(seconds=20)
    assert exploration.failure
    first = try_lock(candidate("a", table="racing_wallet"), exploration.failure, fork, exploration=exploration)
    runs = len(spent)

    assert (
        try_lock(candidate("b", table="racing_wallet"), exploration.failure, fork, exploration=exploration)
        == first
        != ""
    )
    assert len(spent) == runs


def test_a_table_without_a_model_has_none() -> None:
    pk = Wallet.objects.create(balance=100).pk
    assert tried(lambda fixture: spend(pk), "elsewhere") == ""
