"""The account is a good citizen of django-concurrency: its own test mixin passes, its handlers work."""

import sys
from functools import partial
from typing import Any

import pytest
from concurrency.api import disable_concurrency, get_revision_of_object, is_changed
from concurrency.exceptions import RecordModifiedError
from concurrency.fields import AutoIncVersionField
from concurrency.test_utils import ConcurrencyTestMixin
from concurrency.views import conflict
from django.core.exceptions import ImproperlyConfigured
from django.db import connection
from django.test import RequestFactory, TestCase, override_settings
from django.test.utils import CaptureQueriesContext

from accounts.concurrency_model import concurrency_model, save_with_django_concurrency
from accounts.models import Account
from accounts.strategies import STRATEGIES
from django_lockstep.contrib.django_concurrency import make_recognizable
from tests.support.factories import AccountFactory, UserFactory
from tests.testapps.shop.models import Seat

pytestmark = pytest.mark.django_db

make_recognizable(Account)
make_recognizable(Seat)


class TheirOwnTests(ConcurrencyTestMixin, TestCase):  # type: ignore[misc]
    concurrency_model = Account

    def setUp(self) -> None:
        self.concurrency_kwargs = {"user": UserFactory.create()}


class TheirOwnTestsOfAModelWithoutAutoNow(ConcurrencyTestMixin, TestCase):  # type: ignore[misc]
    """Their mixin saves without a change and expects a new version, which has to be asked for."""

    concurrency_model = Seat

    def _get_concurrency_target(self, **values: Any) -> Any:
        seat = super()._get_concurrency_target(**values)
        seat.save = partial(seat.save, force_write=True)
        return seat


def test_their_api_sees_our_version() -> None:
    account = AccountFactory.create()
    stale = Account.objects.get(pk=account.pk)
    account.try_deposit(5)
    assert (get_revision_of_object(account), is_changed(account), is_changed(stale)) == (2, False, True)


def test_their_switch_does_not_turn_our_comparison_off() -> None:
    seat, stale = Seat.objects.create(), Seat.objects.get()
    seat.update_if_unchanged(guest="Ada")
    with disable_concurrency(), pytest.raises(RecordModifiedError):
        stale.save()


def test_their_conflict_page_takes_our_error() -> None:
    account = AccountFactory.create()
    stale = Account.objects.get(pk=account.pk)
    account.try_deposit(5)
    stale.overdraft_limit = 5
    with pytest.raises(RecordModifiedError) as caught:
        stale.save()
    error: Any = caught.value
    page = {"409.html": "{{ target.version }} is not {{ saved.version }}"}
    loaders = {"loaders": [("django.template.loaders.locmem.Loader", page)]}
    engine = {"BACKEND": "django.template.backends.django.DjangoTemplates", "OPTIONS": loaders}
    with override_settings(TEMPLATES=[engine]):
        response = conflict(RequestFactory().get("/"), target=error.target)
    assert (response.status_code, response.content) == (409, b"1 is not 2")


# The strategy of its name


def test_the_strategy_saves_with_a_model_and_a_field_of_theirs() -> None:
    unmanaged = concurrency_model(Account)
    assert not issubclass(unmanaged, Account)
    assert type(unmanaged._meta.get_field("version")) is AutoIncVersionField
    assert concurrency_model(Account) is unmanaged
    assert (unmanaged._meta.db_table, unmanaged._meta.managed) == (Account._meta.db_table, False)


def test_the_strategy_sends_their_select_and_their_guarded_update(account: Account) -> None:
    with CaptureQueriesContext(connection) as captured:
        changed = STRATEGIES["django_concurrency"].deposit(account.pk, 5)
    read, looked, update, entry = [entry["sql"] for entry in captured if entry["sql"].split()[0] not in _SAVEPOINTS]
    assert [sql.split()[0] for sql in (read, looked, update, entry)] == ["SELECT", "SELECT", "UPDATE", "INSERT"]
    assert '"version" = 1' in update.partition("WHERE")[2]
    current = Account.objects.get()
    assert (changed.balance, changed.version, changed.updated_at) == (current.balance, 2, current.updated_at)
    assert changed.try_deposit(5)


_SAVEPOINTS = {"SAVEPOINT", "RELEASE"}


def test_a_conflict_is_raised_by_their_save(account: Account) -> None:
    stale = Account.objects.get()
    assert account.try_deposit(5)
    with pytest.raises(RecordModifiedError) as caught:
        save_with_django_concurrency(stale, using="default")
    assert type(caught.value) is RecordModifiedError
    assert stale.version == 1


def test_without_the_package_the_strategy_says_so(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "concurrency.fields", None)
    concurrency_model.cache_clear()
    with pytest.raises(ImproperlyConfigured, match="requires the package django-concurrency"):
        STRATEGIES["django_concurrency"].deposit(account.pk, 5)
