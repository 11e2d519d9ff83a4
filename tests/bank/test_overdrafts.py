"""Two users and one table in a real browser: the second one's form is locked, and unlocks when the first is done."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from playwright.sync_api import Page, Route, expect

from accounts.models import Account
from django_lockstep.editing import status_of, take_over
from django_lockstep.editing.models import EditLock
from tests.support.browser import chromium, logged_in, serious_faults, staff_page
from tests.support.factories import UserFactory
from tests.support.sessions import until

pytestmark = pytest.mark.django_db(transaction=True)
__all__ = ["chromium", "logged_in", "staff_page"]

Enter = Callable[..., Page]


@pytest.fixture
def account(transactional_db: None) -> Account:
    return Account.objects.create(user=UserFactory.create(username="owner"), overdraft_limit=Decimal("100.00"))


def opened(page: Page, said: list[str]) -> Page:
    """Open the form; collect what the browser complains of, such as scripts that a policy refuses."""
    page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.route("**/overdrafts/", with_policy)
    page.goto("/overdrafts/")
    return page


def with_policy(route: Route) -> None:
    """Answer as a project with a strict policy would."""
    if route.request.method != "GET":
        return route.continue_()
    response = route.fetch()
    headers = {**response.headers, "content-security-policy": "default-src 'self'"}
    return route.fulfill(response=response, headers=headers)


def limit(page: Page, account: Account) -> Any:
    return page.get_by_label(f"account {account.pk} (owner)", exact=False)


def test_the_second_users_form_is_locked_until_the_first_is_done(staff_page: Enter, account: Account) -> None:
    said: list[str] = []
    ada, bob = opened(staff_page("ada"), said), opened(staff_page("bob"), said)
    for page in (ada, bob):
        expect(page.get_by_role("status")).to_contain_text("No user is editing.")
        expect(limit(page, account)).to_be_disabled()

    ada.get_by_role("button", name="Edit", exact=True).click()
    expect(ada.get_by_role("status")).to_contain_text("You are editing.")
    expect(limit(ada, account)).to_be_enabled()
    expect(bob.get_by_role("status")).to_contain_text("Another user is editing: ada")

    bob.get_by_role("button", name="Edit", exact=True).click()
    expect(bob.get_by_role("status")).to_contain_text("Locked until this user is done: ada")
    assert serious_faults(ada) + serious_faults(bob) == []
    expect(limit(bob, account)).to_be_disabled()

    limit(ada, account).fill("250.00")
    ada.get_by_role("button", name="Save").click()
    expect(bob.get_by_role("status")).to_contain_text("You are editing.")
    expect(limit(bob, account)).to_be_enabled()
    expect(limit(bob, account)).to_have_value("250.00")
    expect(ada.get_by_role("status")).to_contain_text("Another user is editing: bob")

    bob.get_by_role("button", name="Stop editing").click()
    expect(bob.get_by_role("status")).to_contain_text("No user is editing.")
    expect(limit(bob, account)).to_be_disabled()
    account.refresh_from_db()
    assert account.overdraft_limit == Decimal("250.00")
    assert not EditLock.objects.exists()
    assert said == []


def test_leaving_the_page_gives_it_back(staff_page: Enter, account: Account) -> None:
    ada = opened(staff_page("ada"), [])
    ada.get_by_role("button", name="Edit", exact=True).click()
    expect(ada.get_by_role("status")).to_contain_text("You are editing.")
    assert status_of(Account).holder == "ada"
    ada.goto("/admin/")
    until(lambda: not EditLock.objects.exists(), "the page to give it back")


def test_a_form_whose_check_out_was_taken_over_is_locked_again(staff_page: Enter, account: Account) -> None:
    ada = opened(staff_page("ada"), [])
    ada.get_by_role("button", name="Edit", exact=True).click()
    expect(limit(ada, account)).to_be_enabled()
    limit(ada, account).fill("999.00")
    take_over(Account, UserFactory.create(username="chief", is_superuser=True))
    expect(ada.get_by_role("status")).to_contain_text("Your check-out has ended. Nothing was saved.")
    expect(limit(ada, account)).to_be_disabled()
    account.refresh_from_db()
    assert account.overdraft_limit == Decimal("100.00")


@pytest.mark.parametrize("token", ["", "wrong"])
def test_nothing_is_saved_without_a_check_out(admin_client: Client, account: Account, token: str) -> None:
    page = admin_client.get("/overdrafts/")
    sent = {**page.context["limits"].management_form.initial, "0-id": account.pk, "0-overdraft_limit": "999.00"}
    data = {f"form-{name.removeprefix('form-')}": value for name, value in sent.items()}
    refused = admin_client.post("/overdrafts/", {**data, "token": token})
    assert (refused.status_code, b"999.00" in refused.content) == (409, True)
    account.refresh_from_db()
    assert account.overdraft_limit == Decimal("100.00")
