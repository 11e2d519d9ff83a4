"""API tokens: whose they are, what they are good for, until when; how they are listed and revoked."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.core.cache import cache
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from accounts.api import make_token
from accounts.models import Account, ApiToken, Entry
from django_lockstep.http import etag
from tests.support.factories import AccountFactory, UserFactory
from tests.support.sessions import Session

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _no_failures_yet() -> None:
    cache.clear()


def ask(token: str, path: str = "/accounts") -> Any:
    return Client().get(f"/api{path}", headers={"Authorization": f"Bearer {token}"})


def deposit(token: str, account: Account, amount: str = "1", operation: str = "deposit", **headers: str) -> Any:
    return Client().post(
        f"/api/accounts/{account.pk}/{operation}",
        {"amount": amount},
        content_type="application/json",
        headers={"Authorization": f"Bearer {token}", **headers},
    )


def staff(*permissions: str) -> Any:
    user = UserFactory.create(is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=[f"{name}_account" for name in permissions]))
    return user


class TestHolding:
    def test_the_database_does_not_know_the_token(self, account: Account) -> None:
        text = make_token(account.user)
        kept = ApiToken.objects.values().get()
        assert not any(text.partition(".")[2] in str(value) for value in kept.values())

    def test_a_revoked_token_is_invalid(self, account: Account) -> None:
        first, second = make_token(account.user), make_token(account.user)
        assert ApiToken.objects.order_by("pk")[0].revoke()
        assert (ask(first).status_code, ask(second).status_code) == (401, 200)

    def test_revoking_twice_keeps_the_first_time(self, account: Account) -> None:
        token, _ = ApiToken.issue(account.user)
        assert (token.revoke(), token.revoke()) == (True, False)

    def test_it_ends_with_its_age(self, account: Account) -> None:
        text = make_token(account.user, age=timedelta(hours=1))
        assert ask(text).status_code == 200
        ApiToken.objects.update(expires_at=timezone.now())
        assert ask(text).status_code == 401

    @pytest.mark.parametrize(("setting", "age"), [(3600, timedelta(hours=1)), (timedelta(days=2), timedelta(days=2))])
    def test_a_setting_says_how_old_it_may_become(
        self, setting: Any, age: Any, account: Account, settings: Any
    ) -> None:
        settings.ACCOUNTS_API_TOKEN_AGE = setting
        before = timezone.now()
        token, _ = ApiToken.issue(account.user)
        assert before <= token.expires_at - age <= timezone.now()

    def test_without_one_it_never_ends(self, account: Account, settings: Any) -> None:
        settings.ACCOUNTS_API_TOKEN_AGE = None
        token, text = ApiToken.issue(account.user)
        assert (token.expires_at, ask(text).status_code) == (None, 200)

    @pytest.mark.parametrize("spoil", ["{}x", "x{}", "{}.x", " {}", "0{}", "{}\x00"])
    def test_other_text_is_not_a_token(self, spoil: str, account: Account) -> None:
        assert ask(spoil.format(make_token(account.user))).status_code == 401

    def test_the_number_of_one_does_not_open_with_the_secret_of_another(self, account: Account) -> None:
        (first, _), (_, text) = (ApiToken.issue(account.user) for _ in range(2))
        assert ask(f"{first.pk}.{text.partition('.')[2]}").status_code == 401


class TestLastUse:
    def test_it_is_written_down_to_the_minute(self, account: Account) -> None:
        text = make_token(account.user)
        assert ApiToken.objects.get().last_used_at is None
        ask(text)
        used = ApiToken.objects.get().last_used_at
        ask(text)
        assert used is not None
        assert ApiToken.objects.get().last_used_at == used
        ApiToken.objects.update(last_used_at=used - timedelta(minutes=2))
        ask(text)
        again = ApiToken.objects.get().last_used_at
        assert again is not None
        assert again >= used

    @pytest.mark.django_db(transaction=True)
    def test_no_request_waits_for_another_ones_note(self, other: Session) -> None:
        text = make_token(AccountFactory.create().user)
        other.begin()
        other.run(lambda: list(ApiToken.objects.select_for_update()))
        assert ask(text).status_code == 200
        other.end()
        assert ApiToken.objects.get().last_used_at is None


class TestScopes:
    @pytest.mark.parametrize("scopes", [[], ["nothing"], ["view", "View"]])
    def test_there_are_no_others(self, scopes: list[str], account: Account) -> None:
        with pytest.raises(ValueError, match="view, deposit, withdraw, transfer, change"):
            make_token(account.user, scopes=scopes)

    def test_one_to_look_changes_nothing(self, account: Account) -> None:
        text = make_token(account.user, scopes=["view"])
        assert ask(text).status_code == ask(text, f"/accounts/{account.pk}").status_code == 200
        refused = deposit(text, account)
        assert (refused.status_code, "deposit" in refused.json()["detail"]) == (403, True)
        assert not Entry.objects.exists()

    def test_one_to_deposit_sees_nothing(self, account: Account) -> None:
        text = make_token(account.user, scopes=["deposit"])
        assert ask(text).status_code == ask(text, f"/accounts/{account.pk}/entries").status_code == 403
        assert deposit(text, account, operation="withdraw").status_code == 403
        done = deposit(text, account)
        account.refresh_from_db()
        assert done.json() == {"id": str(account.pk), "balance": None, "overdraft_limit": None, "version": 2}
        assert (done.headers["ETag"], account.balance) == (etag(account), 101)

    def test_a_scope_gives_no_permission(self, account: Account) -> None:
        text = make_token(account.user, scopes=["change"])
        response = Client().put(
            f"/api/accounts/{account.pk}",
            {"overdraft_limit": "5"},
            content_type="application/json",
            headers={"Authorization": f"Bearer {text}", "If-Match": etag(account)},
        )
        assert response.status_code == 403


class TestTellers:
    """Staff who may book and not look."""

    @pytest.mark.parametrize("operation", ["deposit", "withdraw"])
    def test_what_is_on_the_account_is_not_theirs_to_see(self, operation: str, account: Account) -> None:
        text = make_token(staff(operation))
        assert ask(text, f"/accounts/{account.pk}").status_code == 404
        told = deposit(text, account, operation=operation)
        assert (told.status_code, told.json()["balance"], told.json()["overdraft_limit"]) == (200, None, None)

    def test_nor_is_it_when_they_are_refused(self, account: Account) -> None:
        refused = deposit(make_token(staff("withdraw")), account, amount="100.01", operation="withdraw")
        assert (refused.status_code, "balance" in refused.json(), b"100" in refused.content) == (409, False, False)

    def test_nor_by_a_transfer(self, account: Account) -> None:
        body = {"source": str(account.pk), "target": str(AccountFactory.create().pk), "amount": "30"}
        headers = {"Authorization": f"Bearer {make_token(staff('transfer'))}"}
        told = Client().post("/api/transfers", body, content_type="application/json", headers=headers)
        assert (told.status_code, told.json()["source"]["balance"]) == (200, None)

    def test_who_may_look_as_well_sees_it(self, account: Account) -> None:
        assert deposit(make_token(staff("deposit", "view")), account).json()["balance"] == "101.00"


class TestFailures:
    @pytest.mark.parametrize("path", ["/api/accounts", "/editing/api/tables"])
    def test_too_many_are_429(self, path: str, account: Account) -> None:
        headers = {"Authorization": "Bearer x"}
        answers = [Client().get(path, headers=headers) for _ in range(31)]
        assert [answer.status_code for answer in answers] == [401] * 30 + [429]
        assert int(answers[-1].headers["Retry-After"]) > 0
        assert answers[-1].headers["Content-Type"] == "application/problem+json"

    def test_they_do_not_keep_out_who_has_a_token(self, account: Account) -> None:
        for _ in range(40):
            ask("x")
        assert ask(make_token(account.user)).status_code == 200

    def test_nor_another_address(self, account: Account) -> None:
        for _ in range(31):
            ask("x")
        response = Client(REMOTE_ADDR="192.0.2.7").get("/api/accounts", headers={"Authorization": "Bearer x"})
        assert response.status_code == 401


class TestCommand:
    def run(self, capsys: pytest.CaptureFixture[str], *args: str) -> str:
        call_command("api_token", *args)
        return capsys.readouterr().out

    def test_a_token_is_made_listed_used_and_revoked(self, account: Account, capsys: Any) -> None:
        name = account.user.get_username()
        text = self.run(
            capsys, "create", name, "--scope", "view", "--scope", "deposit", "--name", "till 4", "--age", "1d"
        ).strip()
        assert ask(text).status_code == 200
        number = text.partition(".")[0]
        line = self.run(capsys, "list", name).splitlines()[-1].split("\t")
        assert line[:4] == [number, name, "till 4", "view deposit"]
        assert line[-1] == "never"
        assert "revoked" in self.run(capsys, "revoke", number)
        assert ask(text).status_code == 401
        assert self.run(capsys, "list").splitlines()[-1].split("\t")[-1] != "never"

    def test_the_list_of_a_user_has_no_others(self, account: Account, capsys: Any) -> None:
        make_token(AccountFactory.create().user)
        assert len(self.run(capsys, "list", account.user.get_username()).splitlines()) == 1

    def test_there_is_nothing_to_revoke_twice(self, account: Account) -> None:
        token, _ = ApiToken.issue(account.user)
        call_command("api_token", "revoke", str(token.pk))
        with pytest.raises(CommandError, match=f"no token {token.pk}, or it was already revoked"):
            call_command("api_token", "revoke", str(token.pk))


class TestAdmin:
    URL = "/admin/accounts/apitoken/"

    def revoke(self, client: Client, token: ApiToken) -> Any:
        return client.post(self.URL, {"action": "revoke", "_selected_action": [token.pk]}, follow=True)

    def test_it_shows_and_revokes_and_does_neither_make_nor_change(
        self, admin_client: Client, account: Account
    ) -> None:
        token, text = ApiToken.issue(account.user, name="till 4")
        page = admin_client.get(f"{self.URL}{token.pk}/change/")
        assert b"till 4" in page.content
        assert token.digest.encode() not in page.content
        assert admin_client.get(f"{self.URL}add/").status_code == 403
        assert b"1 token was revoked." in self.revoke(admin_client, token).content
        assert ask(text).status_code == 401

    def test_revoking_needs_its_permission(self, account: Account) -> None:
        token, text = ApiToken.issue(account.user)
        user = UserFactory.create(is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename="view_apitoken"))
        client = Client()
        client.force_login(user)
        assert client.get(self.URL).status_code == 200
        self.revoke(client, token)
        assert ask(text).status_code == 200
