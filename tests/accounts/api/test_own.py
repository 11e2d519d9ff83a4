"""The API as a project may make it: its own ways in, its own limits."""

from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client
from django.urls import path
from ninja.throttling import AuthRateThrottle

from accounts.api import account_api
from accounts.models import Account
from tests.accounts.api.clients import Api

pytestmark = pytest.mark.django_db


def by_name(request: Any) -> Any:
    """Authenticate by a header with the user name; for tests."""
    request.user = Account.objects.get(user__username=request.headers["X-Name"]).user
    return request.user


limited = account_api(throttle=[AuthRateThrottle("2/h")], namespace="limited")
own_way = account_api(auth=[by_name], namespace="own-way")
urlpatterns = [path("api/", limited.urls), path("own/", own_way.urls)]


@pytest.fixture(autouse=True)
def _urls(settings: Any) -> None:
    settings.ROOT_URLCONF = __name__
    cache.clear()


def test_too_many_requests_are_429_with_retry_after(account: Account) -> None:
    api = Api(account.user)
    answers = [api.get("/accounts") for _ in range(3)]

    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert int(answers[-1].headers["Retry-After"]) > 0
    assert answers[-1].headers["Content-Type"] == "application/problem+json"


def test_a_project_may_let_people_in_by_its_own_way(account: Account) -> None:
    response = Client().get("/own/accounts", headers={"X-Name": account.user.username})
    assert [each["id"] for each in response.json()["results"]] == [str(account.pk)]
