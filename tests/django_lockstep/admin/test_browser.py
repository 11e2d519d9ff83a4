"""Two people with a browser each, and one object."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from accounts.models import Account
from tests.django_lockstep.admin.browsing import url
from tests.support.browser import chromium, logged_in, serious_faults, staff_page
from tests.support.factories import AccountFactory
from tests.testapps.shop.models import Order, Seat

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.django_lockstep.admin.urls")]

Pages = tuple[Page, Page]
__all__ = ["chromium", "logged_in", "staff_page"]


@pytest.fixture
def seat(transactional_db: None) -> Seat:
    seat = Seat.objects.create(row="A", guest="Nobody", price="10.00")
    Order.objects.create(seat=seat, dish="soup")
    return seat


@pytest.fixture
def two(staff_page: Callable[..., Page]) -> Pages:
    return staff_page("ann"), staff_page("bob")


def both_open(two: Pages, address: str) -> Pages:
    for page in two:
        page.goto(address)
    return two


def save(page: Page) -> None:
    page.locator("input[name=_save]").first.click()


def test_nothing_is_sent_before_it_is_decided(two: Pages, seat: Seat) -> None:
    ann, bob = both_open(two, url(seat))
    for page, guest in ((ann, "Ann's guest"), (bob, "Bob's guest")):
        page.get_by_label("Guest").fill(guest)
        save(page)
    bob.get_by_role("button", name="Save this").click()
    expect(bob.get_by_role("heading", name="Not saved: it was changed in the meantime")).to_be_visible()
    assert Seat.objects.get().guest == "Ann's guest"


def test_a_conflict_is_solved_with_the_keyboard_alone(two: Pages, seat: Seat) -> None:
    ann, bob = both_open(two, url(seat))
    ann.get_by_label("Guest").fill("Ann's guest")
    save(ann)
    bob.get_by_label("Guest").focus()
    bob.keyboard.press("Control+a")
    bob.keyboard.type("Bob's guest")
    bob.keyboard.press("Enter")
    expect(bob.get_by_role("heading", name="Not saved: it was changed in the meantime")).to_be_visible()
    assert serious_faults(bob) == []
    tab_to(bob, 'input[name="choice-guest"]')
    bob.keyboard.press("ArrowRight")
    expect(bob.get_by_role("radio", name="Bob's guest")).to_be_checked()
    tab_to(bob, "input[type=submit]")
    bob.keyboard.press("Enter")
    expect(bob.get_by_text("was changed successfully")).to_be_visible()
    assert Seat.objects.get().guest == "Bob's guest"


def tab_to(page: Page, selector: str) -> None:
    """Press Tab until the focus is there."""
    for _ in range(80):
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"80 times Tab do not lead to {selector}")


def test_an_action_does_not_begin(two: Pages, seat: Seat) -> None:
    ann, bob = both_open(two, url(seat, "list"))
    ann.locator("#id_form-0-guest").fill("Ann's guest")
    save(ann)
    bob.locator("input.action-select").check()
    bob.locator("select[name=action]").select_option("give_away")
    bob.get_by_role("button", name=re.compile("^(Go|Run)")).click()
    expect(bob.get_by_role("heading", name="Not done: changed in the meantime")).to_be_visible()
    assert Seat.objects.get().guest == "Ann's guest"


def test_deleting_begins_with_what_the_form_showed(two: Pages, seat: Seat) -> None:
    ann, bob = both_open(two, url(seat))
    ann.get_by_label("Guest").fill("Ann's guest")
    save(ann)
    bob.locator("a.deletelink").click()
    expect(bob.get_by_role("heading", name="Not deleted: it was changed in the meantime")).to_be_visible()
    expect(bob.get_by_role("row", name="Guest another value Ann's guest")).to_be_visible()
    bob.get_by_role("link", name="Review the current version").click()
    bob.get_by_role("button", name=re.compile("^Yes")).click()
    expect(bob.get_by_text("was deleted successfully")).to_be_visible()
    assert Seat.objects.count() == 0


@pytest.mark.urls("bank.urls")
def test_one_account_is_edited_by_two(two: Pages) -> None:
    account = AccountFactory.create(balance=100)
    ann, bob = both_open(two, url(account))
    ann.get_by_role("link", name="Deposit").click()
    ann.get_by_label("Amount").fill("5")
    # A double click, of which the second half cannot meet the next page.
    twice = "button => { button.form.requestSubmit(button); button.form.requestSubmit(button); }"
    ann.get_by_role("button", name="Deposit").evaluate(twice)
    expect(ann.get_by_text("Done: the balance is 105.00.")).to_be_visible()
    bob.get_by_label("Overdraft limit").fill("20.00")
    save(bob)
    expect(bob.get_by_text("Deposit (pessimistic), entry")).to_be_visible()
    bob.get_by_role("button", name="Save this").click()
    expect(bob.get_by_text("was changed successfully")).to_be_visible()
    stored: Any = Account.objects.get()
    assert (stored.balance, stored.overdraft_limit, stored.entries.count()) == (105, 20, 1)
