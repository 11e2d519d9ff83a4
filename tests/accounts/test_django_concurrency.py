"""The account is a good citizen of django-concurrency: its own test mixin passes, its handlers work."""

from typing import Any

import pytest
from concurrency.api import get_revision_of_object, is_changed
from concurrency.exceptions import RecordModifiedError
from concurrency.test_utils import ConcurrencyTestMixin
from concurrency.views import conflict
from django.test import RequestFactory, TestCase, override_settings

from accounts.models import Account
from django_lockstep.contrib.django_concurrency import make_recognizable
from tests.support.factories import AccountFactory, UserFactory

make_recognizable(Account)


class TheirOwnTests(ConcurrencyTestMixin, TestCase):  # type: ignore[misc]
    concurrency_model = Account

    def setUp(self) -> None:
        self.concurrency_kwargs = {"user": UserFactory.create()}


@pytest.mark.django_db
def test_their_api_sees_our_version() -> None:
    account = AccountFactory.create()
    stale = Account.objects.get(pk=account.pk)
    account.try_deposit(5)
    assert (get_revision_of_object(account), is_changed(account), is_changed(stale)) == (2, False, True)


@pytest.mark.django_db
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
