"""The demo's HTTP API."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.test import Client

from accounts.models import Account, Entry
from tests.support.factories import AccountFactory, UserFactory, client_of
from tests.support.sessions import Session

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def post(account: Account) -> Callable[..., Any]:
    """Return a function that sends a POST as the owner of the account."""
    client = client_of(account.user)

    def send(path: str, body: Any, **headers: str) -> Any:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        return client.post(f"/api/{path}", body, content_type="application/json", headers=names)

    return send


def test_an_account_is_read_once_per_version(account: Account) -> None:
    client, path = client_of(account.user), f"/api/accounts/{account.pk}"
    page = client.get(path)
    assert page.json() == {"id": account.pk, "balance": "100.00", "overdraft_limit": "0.00", "version": 1}
    assert page.headers["ETag"] == f'"{account.pk}.1"'
    assert "private" in page.headers["Cache-Control"]
    assert client.get(path, headers={"If-None-Match": page.headers["ETag"]}).status_code == 304
    assert client.post(path).status_code == 405


def test_without_a_condition_a_change_is_made_in_whatever_version(account: Account, post: Any) -> None:
    assert post(f"accounts/{account.pk}/deposit", {"amount": "5"}).json()["balance"] == "105.00"
    assert post(f"accounts/{account.pk}/withdraw", {"amount": "30.50"}).json()["balance"] == "74.50"


@pytest.mark.parametrize("kind", ["deposit", "withdraw"])
def test_with_a_condition_only_in_that_version(account: Account, post: Any, kind: str) -> None:
    path, seen = f"accounts/{account.pk}/{kind}", f'"{account.pk}.1"'
    answer = post(path, {"amount": "30"}, If_Match=seen)
    assert (answer.status_code, answer.headers["ETag"]) == (200, f'"{account.pk}.2"')
    refused = post(path, {"amount": "30"}, If_Match=seen)
    assert (refused.status_code, refused.headers["ETag"]) == (412, f'"{account.pk}.2"')
    assert refused.headers["Content-Type"] == "application/problem+json"
    assert post(path, {"amount": "30"}, If_Match="1").status_code == 400
    assert Entry.objects.count() == 1


def test_a_key_books_once(account: Account, post: Any) -> None:
    path, headers = f"accounts/{account.pk}/withdraw", {"If_Match": f'"{account.pk}.1"', "Idempotency_Key": '"k"'}
    first, again = (post(path, {"amount": "30"}, **headers) for _ in range(2))
    assert first.json() == again.json() == {**first.json(), "balance": "70.00", "version": 2}
    assert post(path, {"amount": "31"}, Idempotency_Key="k").status_code == 422
    assert post(path, {"amount": "30"}, Idempotency_Key="").status_code == 400
    assert Entry.objects.count() == 1


def test_a_transfer_is_made_once_and_only_in_the_version_of_the_source(account: Account, post: Any) -> None:
    target = AccountFactory.create()
    body = {"source": str(account.pk), "target": str(target.pk), "amount": "30"}
    headers = {"If_Match": f'"{account.pk}.1"', "Idempotency_Key": "t"}
    answers = [post("transfers", body, **headers) for _ in range(2)]
    assert [answer.json()["balance"] for answer in answers] == ["70.00", "70.00"]
    assert post("transfers", body, If_Match=f'"{account.pk}.1"').status_code == 412
    target.refresh_from_db()
    assert (target.balance, Entry.objects.count()) == (30, 2)


def test_what_the_account_does_not_cover_is_a_conflict(account: Account, post: Any) -> None:
    answer = post(f"accounts/{account.pk}/withdraw", {"amount": "100.01"})
    assert (answer.status_code, answer.json()["balance"]) == (409, "100.00")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("{", 400),
        ("[" * 100_000, 400),
        ([], 422),
        ({}, 422),
        ({"amount": 5}, 422),
        ({"amount": "5", "more": "x"}, 422),
        ({"amount": "-5"}, 422),
        ({"amount": "0.001"}, 422),
    ],
    ids=str,
)
def test_bodies_that_are_refused(account: Account, post: Any, body: Any, status: int) -> None:
    assert post(f"accounts/{account.pk}/deposit", body).status_code == status
    assert not Entry.objects.exists()


@pytest.mark.parametrize("target", ["own", "0", "x", "9" * 30])
def test_targets_that_are_refused(account: Account, post: Any, target: str) -> None:
    key = str(account.pk)
    body = {"source": key, "target": key if target == "own" else target, "amount": "5"}
    assert post("transfers", body).status_code == 422
    assert not Entry.objects.exists()


def test_who_may_what(account: Account) -> None:
    path, body = f"/api/accounts/{account.pk}", {"amount": "5"}
    assert Client().get(path).status_code == 403
    staff = UserFactory.create(is_staff=True)
    for user in (UserFactory.create(), staff):
        assert client_of(user).get(path).status_code == 404
        assert client_of(user).post(f"{path}/deposit", body, content_type="application/json").status_code == 404
    staff.user_permissions.add(Permission.objects.get(codename="view_account"))
    assert client_of(staff).get(path).status_code == 200
    assert client_of(staff).post(f"{path}/deposit", body, content_type="application/json").status_code == 404
    staff.user_permissions.add(Permission.objects.get(codename="deposit_account"))
    assert client_of(staff).post(f"{path}/deposit", body, content_type="application/json").status_code == 200


def test_a_session_needs_the_token_against_forged_requests(account: Account) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(account.user)
    assert client.post(f"/api/accounts/{account.pk}/deposit", {"amount": "5"}).status_code == 403
    assert not Entry.objects.exists()


def test_a_row_that_stays_locked_is_503(
    account: Account, post: Any, other: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bank.api._LONGEST_WAIT", 0.1)
    with other.holding(Account.objects.lock, account.pk):
        body = {"source": str(account.pk), "target": str(AccountFactory.create().pk), "amount": "5"}
        for answer in (post(f"accounts/{account.pk}/deposit", {"amount": "5"}), post("transfers", body)):
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
