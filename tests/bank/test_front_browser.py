"""The front page and the race page in a real browser, wide and narrow, with and without script."""

import re

import pytest
from playwright.sync_api import expect

from tests.support.browser import OpenPage, chromium, expect_no_run, open_page, overflows

pytestmark = pytest.mark.django_db(transaction=True)
__all__ = ["chromium", "open_page"]


@pytest.mark.parametrize("script", [True, False], ids=["script", "no-script"])
def test_a_visitor_races_the_three_and_steps_through_one(open_page: OpenPage, script: bool) -> None:
    page = open_page(java_script_enabled=script)
    page.goto("/")
    page.get_by_role("button", name="Race them").click()
    expect(page.locator(".ending.right")).to_have_count(2)
    expect(page.locator(".ending.wrong").first).to_have_text(re.compile("70.00 Bob's 20 lost, in 2 of 6 orders"))
    expect_no_run(page)
    expect(page.locator(".now > li:visible")).to_have_count(3 if script else 6 + 8 + 12)

    page.get_by_role("link", name="This order in the race lab").nth(1).click()
    address = page.url
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_role("heading", name="Step 1 of")).to_be_visible()
    assert page.url == address
    page.get_by_role("link", name="Step forward").click()
    expect(page.get_by_role("heading", name="Step 2 of")).to_be_visible()
    expect(page.get_by_role("heading", name="Step 1 of")).to_be_hidden()
    expect(page.locator(".move:visible")).to_contain_text("waits for Ada on accounts_account")
    page.go_back()
    expect(page.get_by_role("heading", name="Step 1 of")).to_be_visible()


def test_the_idioms_are_in_sight_and_stepping_keeps_the_drawing_where_it_is(open_page: OpenPage) -> None:
    page = open_page(viewport={"width": 1280, "height": 900})
    page.goto("/")
    for idiom in ("select_for_update(", ".filter(version=self.version)", ".update(**written)"):
        expect(page.locator(".code-line", has_text=idiom).first).to_be_visible()
    cut = "[...document.querySelectorAll('pre, code, .code-line')].filter(e => e.scrollWidth > e.clientWidth).length"
    assert page.evaluate(cut) == 0 or page.evaluate("[...document.querySelectorAll('pre')].length") == 0
    page.get_by_role("button", name="Race them").click()
    expect(page.locator(".ending.right")).to_have_count(2)
    expect_no_run(page)

    column = page.locator(".approach").nth(1)
    drawing = column.locator("svg.timeline").first
    column.get_by_role("button", name="Step forward").first.click()
    place = drawing.bounding_box()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(column.locator(".now > li:visible")).to_contain_text("Step 4 of 8: Ada")
    expect(column.locator(".code-line.current")).to_have_text(re.compile("account.record"))
    expect(column.locator("svg .current")).to_have_count(1)
    page.keyboard.press("ArrowLeft")
    expect(column.locator(".now > li:visible")).to_contain_text("Step 3 of 8: Ada")
    assert drawing.bounding_box() == place


def test_something_moves_before_the_server_has_answered(open_page: OpenPage) -> None:
    page = open_page()
    page.goto("/")
    # As if the answer took for ever.
    page.evaluate("document.querySelector('.start').addEventListener('submit', event => event.preventDefault())")
    page.get_by_role("button", name="Race them").click()
    moving = "getComputedStyle(document.querySelector('.start.sent'), '::after').animationName"
    expect(page.locator(".start.sent")).to_be_visible()
    assert page.evaluate(moving) == "to-and-fro"


def test_a_shared_link_leads_to_the_same_step(open_page: OpenPage) -> None:
    ada, bob = open_page(), open_page()
    ada.goto("/lab/lost-update:naive/")
    ada.get_by_role("button", name="Run every order").click()
    expect(ada.get_by_text("lost update").first).to_be_visible()
    expect_no_run(ada)
    ada.get_by_role("button", name="Step through").first.click()
    expect(ada.get_by_role("heading", name="One schedule")).to_be_visible()
    expect_no_run(ada)
    ada.get_by_role("link", name="Step 3: ").click()
    statement = ada.locator(".move:visible").inner_text()

    bob.goto(ada.url)
    expect(bob.get_by_label("Schedule", exact=True)).to_have_value(re.compile("^[AB]+$"))
    bob.get_by_role("button", name="Run", exact=True).click()
    bob.get_by_role("link", name="Step 3: ").click()
    assert without_keys(bob.locator(".move:visible").inner_text()) == without_keys(statement)


def without_keys(text: str) -> str:
    return re.sub(r"\d+", "0", text)


def test_a_narrow_screen_shows_the_drawing_and_one_step(open_page: OpenPage) -> None:
    page = open_page(viewport={"width": 390, "height": 844})
    page.goto("/lab/front:pessimistic/?schedule=AB")
    page.get_by_role("button", name="Run", exact=True).click()
    drawing = page.locator("figure.narrow svg").first
    expect(drawing).to_be_visible()
    expect(page.locator("figure.wide").first).to_be_hidden()
    step = page.get_by_role("heading", name=re.compile("Step 2 of .*B"))
    expect(step).to_be_hidden()
    page.get_by_role("link", name="Step 2: B").click()
    expect(step).to_be_visible()
    box = drawing.bounding_box()
    assert box
    assert 0 <= box["x"] < box["x"] + box["width"] <= 390
    assert not overflows(page)
    page.goto("/")
    assert not overflows(page)
