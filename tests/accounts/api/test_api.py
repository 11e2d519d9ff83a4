"""The bank over HTTP."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.db import connection, connections, transaction
from django.test import Client

from accounts.api import account_api
from accounts.models import Account, Entry
from django_lockstep.http import etag
from tests.accounts.api.clients import Api
from tests.support.factories import AccountFactory, UserFactory
from tests.support.sessions import Gate, Session, gated

pytestmark = pytest.mark.django_db


@pytest.fixture
def api(account: Account) -> Api:
    return Api(account.user)


def staff(*permissions: str) -> Any:
    user = UserFactory.create(is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=[f"{name}_account" for name in permissions]))
    return user


class TestWhoIsLetIn:
    def test_without_a_token_or_a_session_it_is_401(self, account: Account) -> None:
        for method, path in every_operation():
            response = getattr(Client(), method)(f"/api{path.format(pk=account.pk)}")
            assert (path, response.status_code) == (path, 401)

    def test_a_token_is_void_once_the_password_changes(self, account: Account, api: Api) -> None:
        assert api.get("/accounts").status_code == 200
        account.user.set_password("new")
        account.user.save()
        assert api.get("/accounts").status_code == 401

    @pytest.mark.parametrize("token", ["", "x", "a:b:c", "WyIxIl0:x:y"])
    def test_an_invalid_token_is_refused(self, token: str) -> None:
        assert Client().get("/api/accounts", headers={"Authorization": f"Bearer {token}"}).status_code == 401

    def test_an_inactive_user_is_refused(self, account: Account, api: Api) -> None:
        account.user.is_active = False
        account.user.save()
        assert api.get("/accounts").status_code == 401

    def test_a_session_needs_the_csrf_token_to_change_something(self, account: Account) -> None:
        client = Client(enforce_csrf_checks=True)
        client.force_login(account.user)
        assert client.get("/api/accounts").status_code == 200
        body = {"amount": "1"}
        refused = client.post(f"/api/accounts/{account.pk}/deposit", body, content_type="application/json")
        assert (refused.status_code, Entry.objects.count()) == (403, 0)

    def test_an_ended_session_is_401(self, account: Account) -> None:
        client = Client(enforce_csrf_checks=True)
        client.force_login(account.user)
        client.session.delete()
        response = client.post(f"/api/accounts/{account.pk}/deposit", {"amount": "1"}, content_type="application/json")
        assert response.status_code == 401

    def test_the_documentation_is_for_staff(self) -> None:
        assert Client().get("/api/openapi.json").status_code == 302


class TestWhatIsSeen:
    def test_ones_own_accounts(self, account: Account, api: Api) -> None:
        AccountFactory.create()
        assert [each["id"] for each in api.get("/accounts").json()["results"]] == [str(account.pk)]

    def test_other_users_accounts_are_404(self, api: Api) -> None:
        other = AccountFactory.create()
        assert api.get(f"/accounts/{other.pk}").status_code == 404
        assert api.get(f"/accounts/{other.pk}/entries").status_code == 404
        assert api.post(f"/accounts/{other.pk}/withdraw", {"amount": "1"}).status_code == 404

    def test_staff_with_the_permission_see_all(self, account: Account) -> None:
        assert Api(staff("view")).get(f"/accounts/{account.pk}").status_code == 200
        assert Api(staff()).get(f"/accounts/{account.pk}").status_code == 404

    def test_money_is_a_string(self, account: Account, api: Api) -> None:
        told = api.get(f"/accounts/{account.pk}").json()
        assert told == {"id": str(account.pk), "balance": "100.00", "overdraft_limit": "0.00", "version": 1}

    def test_what_the_client_has_is_304(self, account: Account, api: Api) -> None:
        response = api.get(f"/accounts/{account.pk}", **{"If-None-Match": etag(account)})
        assert (response.status_code, response.content, response.headers["ETag"]) == (304, b"", etag(account))

    @pytest.mark.parametrize("pk", ["x", "-1", "9" * 40, "%00", "0x1"])
    def test_what_can_be_no_key_is_not_there(self, pk: str, api: Api) -> None:
        assert api.get(f"/accounts/{pk}").status_code == 404

    def test_entries_come_by_cursor_the_latest_first(self, account: Account, api: Api) -> None:
        for amount in range(1, 6):
            Account.deposit(account.pk, amount)
        page = api.get(f"/accounts/{account.pk}/entries?page_size=2").json()
        Account.deposit(account.pk, 6)
        following = Client().get(page["next"], headers=api._headers).json()
        assert [entry["amount"] for entry in page["results"] + following["results"]] == ["5.00", "4.00", "3.00", "2.00"]


class TestMoving:
    def test_a_deposit_answers_with_the_account_and_its_tag(self, account: Account, api: Api) -> None:
        response = api.post(f"/accounts/{account.pk}/deposit", {"amount": "12.50"})
        account.refresh_from_db()
        assert (response.status_code, response.json()["balance"]) == (200, "112.50")
        assert response.headers["ETag"] == etag(account)

    def test_too_much_is_409_and_says_what_there_is(self, account: Account, api: Api) -> None:
        response = api.post(f"/accounts/{account.pk}/withdraw", {"amount": "100.01"})
        assert (response.status_code, response.json()["balance"]) == (409, "100.00")

    @pytest.mark.parametrize("amount", ["0", "-1", "1.001", "1e3", "NaN", "", "1" * 18, 1, 1.5, None, "\u0661"])
    def test_an_invalid_amount_is_422(self, amount: Any, account: Account, api: Api) -> None:
        assert api.post(f"/accounts/{account.pk}/deposit", {"amount": amount}).status_code == 422
        assert not Entry.objects.exists()

    def test_with_if_match_only_in_that_version(self, account: Account, api: Api) -> None:
        path, tag = f"/accounts/{account.pk}/deposit", {"If-Match": etag(account)}
        first, second = (api.post(path, {"amount": "1"}, **tag) for _ in range(2))
        assert (first.status_code, second.status_code) == (200, 412)
        assert second.headers["ETag"] == first.headers["ETag"]

    def test_a_transfer_moves_and_hides_the_others_balance(self, account: Account, api: Api) -> None:
        target = AccountFactory.create(balance=5)
        body = {"source": str(account.pk), "target": str(target.pk), "amount": "30"}
        told = api.post("/transfers", body).json()
        target.refresh_from_db()
        assert (told["source"]["balance"], told["target"], target.balance) == ("70.00", str(target.pk), 35)

    def test_withdrawing_from_another_users_account_is_404(self, account: Account, api: Api) -> None:
        other = AccountFactory.create(balance=100)
        body = {"source": str(other.pk), "target": str(account.pk), "amount": "30"}
        assert api.post("/transfers", body).status_code == 404

    def test_a_transfer_needs_another_account(self, account: Account, api: Api) -> None:
        body = {"source": str(account.pk), "target": str(account.pk), "amount": "30"}
        assert api.post("/transfers", body).status_code == 422
        assert api.post("/transfers", {**body, "target": "987654321"}).status_code == 422

    def test_staff_need_the_permission_for_what_they_do(self, account: Account) -> None:
        path, body = f"/accounts/{account.pk}/deposit", {"amount": "1"}
        assert Api(staff("view", "withdraw")).post(path, body).status_code == 403
        assert Api(staff("view", "deposit")).post(path, body).status_code == 200

    @pytest.mark.django_db(transaction=True)
    def test_a_change_between_check_and_write_is_412(self, other: Session) -> None:
        account = AccountFactory.create(balance=100)
        gate = Gate('UPDATE "accounts_account"', "WITH")
        post = Api(account.user).post
        tag = {"If-Match": etag(account)}
        answer = other.start(gated, gate, lambda: post(f"/accounts/{account.pk}/deposit", {"amount": "1"}, **tag))
        gate.wait_until_reached()
        now = Account.deposit(account.pk, 5)
        gate.open()
        response = answer.result(20)
        assert (response.status_code, response.headers["ETag"]) == (412, etag(now))

    @pytest.mark.parametrize(("header", "status"), [("*", 200), ('"other.1"', 412), ("1", 400), ('W/"other.1"', 412)])
    def test_a_transfer_reads_the_tag_of_its_source(self, header: str, status: int, account: Account, api: Api) -> None:
        body = {"source": str(account.pk), "target": str(AccountFactory.create().pk), "amount": "30"}
        assert api.post("/transfers", body, **{"If-Match": header}).status_code == status
        assert Entry.objects.exists() == (status == 200)

    @pytest.mark.django_db(transaction=True)
    @pytest.mark.parametrize("left", [80, 10], ids=["enough is left", "too little is left"])
    def test_a_change_between_check_and_transfer_is_412_and_nothing_is_moved(self, left: int, other: Session) -> None:
        source, target = AccountFactory.create(balance=100), AccountFactory.create(balance=5)
        body = {"source": str(source.pk), "target": str(target.pk), "amount": "30"}
        with transaction.atomic():
            now = Account.withdraw(source.pk, 100 - left)
            answer = other.start(lambda: Api(source.user).post("/transfers", body, **{"If-Match": etag(source)}))
            other.wait_until_blocked()
        response = answer.result(20)
        target.refresh_from_db()
        assert (response.status_code, response.headers.get("ETag")) == (412, etag(now))
        assert (Entry.objects.get().balance_after, target.balance) == (left, 5)


class TestPut:
    def test_staff_set_the_limit_in_the_version_they_saw(self, account: Account) -> None:
        client, path = Api(staff("view", "change")), f"/accounts/{account.pk}"
        assert client.put(path, {"overdraft_limit": "50"}).status_code == 428
        assert client.put(path, {"overdraft_limit": "50"}, **{"If-Match": '"1.9"'}).status_code == 412
        response = client.put(path, {"overdraft_limit": "50"}, **{"If-Match": etag(account)})
        assert (response.status_code, response.json()["overdraft_limit"]) == (200, "50.00")
        assert response.headers["ETag"] == etag(Account.objects.get())

    @pytest.mark.parametrize("limit", ["\u0661\u0662", "1e2", "1_0", "-1", "0.001", "1" * 18, 5, None, ""])
    def test_an_invalid_limit_is_422(self, limit: Any, account: Account) -> None:
        client = Api(staff("view", "change"))
        response = client.put(f"/accounts/{account.pk}", {"overdraft_limit": limit}, **{"If-Match": etag(account)})
        account.refresh_from_db()
        assert (response.status_code, account.overdraft_limit) == (422, 0)

    def test_the_owner_cannot_raise_his_own_limit(self, account: Account, api: Api) -> None:
        response = api.put(f"/accounts/{account.pk}", {"overdraft_limit": "50"}, **{"If-Match": etag(account)})
        assert response.status_code == 403

    def test_a_limit_below_the_debt_is_refused(self) -> None:
        account = AccountFactory.create(balance=-40, overdraft_limit=50)
        client = Api(staff("view", "change"))
        response = client.put(f"/accounts/{account.pk}", {"overdraft_limit": "10"}, **{"If-Match": etag(account)})
        assert response.status_code == 409

    @pytest.mark.django_db(transaction=True)
    def test_of_sixteen_clients_with_one_tag_one_is_let_through(self) -> None:
        account, client = AccountFactory.create(balance=100), Api(staff("view", "change"))
        tag = {"If-Match": etag(account)}
        answers = at_once(lambda n: client.put(f"/accounts/{account.pk}", {"overdraft_limit": str(n)}, **tag))
        assert sorted(answer.status_code for answer in answers) == [200, *[412] * 15]


class TestIdempotencyKey:
    def test_the_same_request_is_answered_the_same_and_done_once(self, account: Account, api: Api) -> None:
        path, key = f"/accounts/{account.pk}/deposit", {"Idempotency-Key": '"k1"'}
        first = api.post(path, {"amount": "1"}, **key)
        api.post(path, {"amount": "5"})
        again = api.post(path, {"amount": "1.00"}, **key)
        assert (again.status_code, again.json(), again.headers["ETag"]) == (200, first.json(), first.headers["ETag"])
        assert Entry.objects.count() == 2

    def test_it_is_answered_although_the_tag_is_old_by_now(self, account: Account, api: Api) -> None:
        headers = {"Idempotency-Key": "k1", "If-Match": etag(account)}
        answers = [api.post(f"/accounts/{account.pk}/deposit", {"amount": "1"}, **headers) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [200, 200]
        assert Entry.objects.count() == 1

    def test_it_is_not_with_a_condition_that_is_none(self, account: Account, api: Api) -> None:
        path, key = f"/accounts/{account.pk}/deposit", {"Idempotency-Key": "k1"}
        assert api.post(path, {"amount": "1"}, **key).status_code == 200
        assert api.post(path, {"amount": "1"}, **key, **{"If-None-Match": "1"}).status_code == 400

    @pytest.mark.parametrize("retried_with", [True, False], ids=["the tag of then", "the tag of now"])
    def test_a_transfer_is_answered_again_whatever_its_tag(
        self, retried_with: bool, account: Account, api: Api
    ) -> None:
        body = {"source": str(account.pk), "target": str(AccountFactory.create().pk), "amount": "30"}
        tag, key = etag(account), {"Idempotency-Key": "k1"}
        first = api.post("/transfers", body, **key, **{"If-Match": tag})
        again = api.post("/transfers", body, **key, **{"If-Match": tag if retried_with else first.headers["ETag"]})
        assert (again.status_code, again.json(), again.headers["ETag"]) == (200, first.json(), first.headers["ETag"])
        assert Entry.objects.filter(account=account).count() == 1

    def test_another_request_with_the_key_is_422(self, account: Account, api: Api) -> None:
        path, key = f"/accounts/{account.pk}", {"Idempotency-Key": "k1"}
        api.post(f"{path}/deposit", {"amount": "1"}, **key)
        assert api.post(f"{path}/deposit", {"amount": "2"}, **key).status_code == 422
        assert api.post(f"{path}/withdraw", {"amount": "1"}, **key).status_code == 422

    @pytest.mark.parametrize(("quoted", "bare"), [('"k 1"', "k 1"), (r'"a\\b"', r"a\b"), (f'"{"k" * 255}"', "k" * 255)])
    def test_quotes_do_not_make_another_key(self, quoted: str, bare: str, account: Account, api: Api) -> None:
        for key in (quoted, bare):
            response = api.post(f"/accounts/{account.pk}/deposit", {"amount": "1"}, **{"Idempotency-Key": key})
            assert response.status_code == 200
        assert Entry.objects.get().idempotency_key == bare

    @pytest.mark.parametrize(
        "key",
        [
            "",
            '""',
            "k" * 256,
            f'"{"k" * 256}"',
            "ä",
            "\tk",
            '"',
            '"k1',
            'k1"',
            '"k"1"',
            '"k1", "k2"',
            r'"k\1"',
            r'"k1\"',
        ],
    )
    def test_an_invalid_key_is_400(self, key: str, account: Account, api: Api) -> None:
        response = api.post(f"/accounts/{account.pk}/deposit", {"amount": "1"}, **{"Idempotency-Key": key})
        assert response.status_code == 400

    def test_what_was_refused_may_be_tried_again(self, account: Account, api: Api) -> None:
        path, key = f"/accounts/{account.pk}/withdraw", {"Idempotency-Key": "k1"}
        assert api.post(path, {"amount": "200"}, **key).status_code == 409
        Account.deposit(account.pk, 100)
        assert api.post(path, {"amount": "200"}, **key).status_code == 200

    @pytest.mark.django_db(transaction=True)
    def test_while_the_first_is_in_progress_it_is_409(self, other: Session) -> None:
        account = AccountFactory.create(balance=100)
        api, gate = Api(account.user), Gate("INSERT", "WITH")

        def post() -> Any:
            return api.post(f"/accounts/{account.pk}/deposit", {"amount": "1"}, **{"Idempotency-Key": "k1"})

        first = other.start(gated, gate, post)
        gate.wait_until_reached()
        second = post()
        gate.open()
        assert (second.status_code, first.result(20).status_code, post().status_code) == (409, 200, 200)
        assert Entry.objects.count() == 1

    @pytest.mark.django_db(transaction=True)
    def test_sixteen_clients_with_one_key_leave_one_entry(self) -> None:
        account = AccountFactory.create(balance=100)
        client, key = Api(account.user), {"Idempotency-Key": "k1"}
        answers = at_once(lambda n: client.post(f"/accounts/{account.pk}/deposit", {"amount": "1"}, **key))
        assert {answer.status_code for answer in answers} <= {200, 409}
        assert Entry.objects.count() == 1


def at_once(ask: Callable[[int], Any]) -> list[Any]:
    start = threading.Barrier(16)

    def begin(number: int) -> Any:
        start.wait()
        try:
            return ask(number)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(16) as pool:
        return list(pool.map(begin, range(16)))


def every_operation() -> list[tuple[str, str]]:
    schema: Any = account_api(namespace="schema").get_openapi_schema(path_prefix="")
    return [(method, path) for path, methods in schema["paths"].items() for method in methods]


def test_a_conflict_that_outlasts_the_retries_is_503(
    account: Account, api: Api, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.LOCKSTEP_RETRY_WAITS = False

    def lose(execute: Any, sql: str, *rest: Any) -> Any:
        if "FOR NO KEY UPDATE" in sql:
            sql = "DO $$ BEGIN RAISE SQLSTATE '40001'; END $$"
            return execute(sql, None, False, rest[-1])
        return execute(sql, *rest)

    with connection.execute_wrapper(lose):
        response = api.post(f"/accounts/{account.pk}/deposit", {"amount": "1"})
    assert (response.status_code, response.headers["Retry-After"]) == (503, "1")
    assert response.headers["Content-Type"] == "application/problem+json"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("conditional", [False, True], ids=["plain", "If-Match"])
@pytest.mark.parametrize("operation", ["deposit", "withdraw", "transfer", "limit"])
def test_a_locked_row_keeps_no_request_for_ever(
    operation: str, conditional: bool, other: Session, settings: Any
) -> None:
    settings.ACCOUNTS_API_LOCK_TIMEOUT = 0.05
    account, target = AccountFactory.create(balance=100), AccountFactory.create()
    tag = {"If-Match": etag(account)} if conditional or operation == "limit" else {}
    other.begin()
    other.run(lambda: list(Account.objects.select_for_update()))

    if operation == "transfer":
        body = {"source": str(account.pk), "target": str(target.pk), "amount": "1"}
        response = Api(account.user).post("/transfers", body, **tag)
    elif operation == "limit":
        response = Api(staff("view", "change")).put(f"/accounts/{account.pk}", {"overdraft_limit": "1"}, **tag)
    else:
        response = Api(account.user).post(f"/accounts/{account.pk}/{operation}", {"amount": "1"}, **tag)

    other.end()
    assert (response.status_code, response.headers["Retry-After"]) == (503, "1")
    assert response.headers["Content-Type"] == "application/problem+json"
    assert not Entry.objects.exists()
