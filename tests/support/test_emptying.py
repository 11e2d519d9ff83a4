"""What a test has committed is gone before the next one."""

import pytest
from django.contrib.auth.models import Permission
from django.contrib.contenttypes.models import ContentType

from accounts.models import Account, Entry
from tests.support.emptying import Emptying
from tests.support.factories import AccountFactory

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
