"""What the tests stand on: emptied databases, the selection, a server of DynamoDB."""

import re
import sys
from pathlib import Path

import pytest
from django.contrib.auth.models import Permission
from django.contrib.contenttypes.models import ContentType

from accounts.models import Account, Entry
from tests.support.dynamodb import ServerMissingError, server_python
from tests.support.emptying import Emptying
from tests.support.factories import AccountFactory
from tests.support.pages import ROOT
from tests.support.selection import PLACES

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def emptying(monkeypatch: pytest.MonkeyPatch) -> Emptying:
    monkeypatch.setattr("tests.support.emptying._LARGE", 2**40)
    emptying = Emptying()
    emptying.remember("default")
    return emptying


def test_rows_go_and_what_belongs_to_the_tables_stays(emptying: Emptying) -> None:
    types = set(ContentType.objects.values_list("pk", flat=True))
    AccountFactory.create(balance=100).try_deposit(1)

    assert emptying.empty("default")
    assert (Account.objects.count(), Entry.objects.count()) == (0, 0)
    assert set(ContentType.objects.values_list("pk", flat=True)) == types != set()


def test_a_changed_permission_is_left_to_flush(emptying: Emptying) -> None:
    AccountFactory.create()
    Permission.objects.filter(codename="view_account").update(name="Look at it")

    assert not emptying.empty("default")
    assert Account.objects.count() == 1


def test_a_large_table_is_left_to_flush_even_when_its_rows_are_gone(
    emptying: Emptying, monkeypatch: pytest.MonkeyPatch
) -> None:
    Account.objects.filter(pk=AccountFactory.create().pk).delete()
    assert emptying.empty("default")
    monkeypatch.setattr("tests.support.emptying._LARGE", 0)

    assert not emptying.empty("default")


# The selection names places that are there, and leaves something of every room


@pytest.mark.parametrize("place", [place for places in PLACES.values() for place in places])
def test_the_place_is_there(place: str) -> None:
    path, _, function = place.partition("::")
    assert (ROOT / path).exists()
    if function:
        assert re.search(rf"^def {function.partition('[')[0]}", (ROOT / path).read_text(), re.MULTILINE)


def test_every_mark_is_left_out_and_named(pytestconfig: pytest.Config) -> None:
    listed = {line.partition(":")[0] for line in pytestconfig.getini("markers")}
    left_out = (ROOT / "pyproject.toml").read_text()
    for name in PLACES:
        assert name in listed
        assert f"not {name}" in left_out


# What prevents the environment of the DynamoDB server is told


def test_what_prevents_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no python"))
    with pytest.raises(ServerMissingError, match="no python"):
        server_python("server==1", tmp_path)
