"""Changes of the code that are tried as remedies."""

import importlib
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from django.db import models
from django.utils.functional import SimpleLazyObject

from django_lockstep.lab.finder.confirm.forks import Fork
from django_lockstep.lab.finder.confirm.remedies import try_lock, try_patches
from django_lockstep.lab.finder.record.recording import RecordedStatement, Site
from tests.django_lockstep.lab.finder.test_findings import candidate
from tests.testapps.seeded_club.models import Code, Stock
from tests.testapps.seeded_shop.racing import services
from tests.testapps.seeded_shop.racing.models import Basket, Payment, Subscription, Wallet

pytestmark = pytest.mark.django_db(transaction=True)


@dataclass
class Race:
    """A file with a function ``act(pk)`` that races with itself."""

    path: Path
    row: models.Model
    kind: str

    def __post_init__(self) -> None:
        self.module = importlib.import_module(self.path.stem)
        self.fork = Fork(dict.fromkeys("AB", lambda fixture: self.module.act(self.row.pk)))
        self.exploration = self.fork.explore(seconds=20)

    def change(self, ident: str = "a") -> tuple[str, str]:
        """Return the diff that helps, and what is said of it."""
        lines = list(enumerate(self.path.read_text().splitlines(), 1))
        texts = {"read": "(pk=pk)", "write": ".save()"}
        numbers = {name: next(number for number, line in lines if text in line) for name, text in texts.items()}
        sites = {name: Site(path=self.path.name, line=line, function="act") for name, line in numbers.items()}
        accesses = {name: RecordedStatement(site=site, sql="") for name, site in sites.items()}
        race = candidate(ident, kind=self.kind, table=self.row._meta.db_table, **accesses)
        assert self.exploration.failure
        return try_patches(race, self.exploration.failure, self.fork, exploration=self.exploration)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


SPEND = """
from django.db import transaction
from django.db.models import F, Q
from tests.testapps.seeded_shop.racing.models import Wallet

@transaction.atomic
def act(pk):
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
    ("query", "change"),
    [
        ("Wallet.objects.get", '+    wallet.balance = F("balance") - 30'),
        ("Wallet.objects.using(None).get", ".select_for_update().get("),
        # What only looks like a query set has no select_for_update(): the change ends in an error in every order.
        ("queries.wallets.get", ""),
    ],
)
def test_a_change_helps_only_if_the_code_still_works(query: str, change: str, folder: Path) -> None:
    path = folder / f"purse_{len(query)}.py"
    path.write_text(SPEND.format(query=query))
    race = Race(path, Wallet.objects.create(balance=100), "read-modify-write")
    diff, text = race.change()
    # Another candidate of the fork that asks for the same change does not try it again.
    with patch.object(Fork, "explore") as explore:
        assert race.change("b") == (diff, text)
    assert not explore.called

    assert bool(diff) == text.endswith(" end as serial orders do") == bool(change)
    assert change in diff
    assert "+from" not in diff


TAKE = """
from tests.testapps.seeded_club.models import Stock

def act(pk):
    stock = Stock.objects.get(pk=pk)
    if stock.number < 2:
        return "too few"
    stock.number -= 2
    stock.save()
    return {result}
"""
USE = """
from tests.testapps.seeded_club.models import Code

def act(pk):
    code = Code.objects.get(pk=pk)
    if code.used:
        raise ValueError(pk)
    code.used = True
    code.save()
"""
UPDATE = '    if not Stock.objects.filter(pk=stock.pk, number__gte=2).update(number=F("number") - 2):'


@pytest.mark.parametrize(
    ("source", "row", "lines"),
    [
        (TAKE.format(result="stock.pk"), {"number": 3}, ["from django.db.models import F", UPDATE]),
        # The new value is this function's own only as long as the row is locked.
        (
            TAKE.format(result="stock.number"),
            {"number": 5},
            [
                "from django.db import transaction",
                "from django.db.models import F",
                "@transaction.atomic",
                UPDATE,
                '    stock.refresh_from_db(fields=["number"])',
            ],
        ),
        (USE, {}, ["    if not Code.objects.filter(pk=code.pk, used=False).update(used=True):"]),
    ],
)
def test_the_changed_file_does_not_race(source: str, row: dict[str, int], lines: list[str], folder: Path) -> None:
    path = folder / f"club_{len(source)}.py"
    path.write_text(source)
    race = Race(path, Stock.objects.create(**row) if row else Code.objects.create(), "check-then-act")
    # The project's own objects are looked through for functions that were changed, and none is evaluated.
    lazy = SimpleLazyObject(lambda: pytest.fail("a lazy object of the project's was evaluated"))
    setattr(race.module, "lazy", lazy)  # noqa: B010 - the type checker knows no such attribute
    diff, _ = race.change()
    assert not hasattr(race.module, "F")
    subprocess.run(["git", "apply", "-"], input=diff, cwd=folder, text=True, check=True)
    importlib.reload(race.module)

    assert [line for line in path.read_text().splitlines() if line not in source.splitlines()] == lines
    assert race.fork.explore(seconds=20).verdict == "nothing found"


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
    pk = Wallet.objects.create(balance=100).pk
    assert tried(lambda fixture: spend(pk), "elsewhere") == ""  # a table without a model


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
