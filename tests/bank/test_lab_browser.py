"""Runs that one watches in a real browser, with and without script."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser import OpenPage, chromium, expect_no_run, open_page, overflows
from tests.support.kept_runs import run_once

pytestmark = pytest.mark.django_db(transaction=True)
__all__ = ["chromium", "open_page"]


def start_all(page: Page) -> None:
    page.goto("/lab/")
    page.get_by_role("button", name="Run all").click()


def explored(page: Page) -> None:
    """Show the page of a race of which every order was run, by the first test that asks for it."""

    def run() -> None:
        page.get_by_role("button", name="Run every order").click()
        expect(page.get_by_text("lost update").first).to_be_visible()
        expect_no_run(page)

    page.goto("/lab/lost-update:naive/")
    run_once("lost-update:naive", run)
    page.reload()


def is_told(page: Page) -> None:
    """It is on its way, and further than it was."""
    expect(page.get_by_role("status")).to_have_text(re.compile(r"\(\d+ of \d\d\): schedule \d"))
    said = page.get_by_role("status").inner_text()
    expect(page.get_by_role("status")).not_to_have_text(said)
    expect(page.get_by_role("status")).to_have_text(re.compile(r"\(\d+ of \d\d\)"))


def test_a_visitor_without_script_starts_all_watches_and_stops(open_page: OpenPage) -> None:
    page = open_page(java_script_enabled=False)
    start_all(page)
    is_told(page)
    expect(page.get_by_role("row", name=re.compile("^front:pessimistic .* schedules,"))).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_text("The last run was stopped")).to_be_visible()
    expect(page.get_by_role("button", name="Run all")).to_be_visible()


def test_a_second_visitor_is_told_and_watches_the_same(open_page: OpenPage) -> None:
    ada, bob = open_page(), open_page()
    start_all(ada)
    bob.goto("/lab/lost-update:naive/")
    is_told(bob)
    bob.goto("/lab/")
    expect(bob.get_by_role("button", name="Run all")).to_be_hidden()
    expect(ada.get_by_role("row", name=re.compile("^front:pessimistic .* schedules,"))).to_be_visible()
    bob.get_by_role("button", name="Stop").click()
    expect(ada.get_by_text("The last run was stopped")).to_be_visible()
    expect(ada.get_by_role("button", name="Run all")).to_be_visible()


def test_the_keyboard_alone_is_enough(open_page: OpenPage) -> None:
    page = open_page()
    page.goto("/lab/queue:skip-locked/")
    page.get_by_role("button", name="Run every order").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Every schedule, as a tree")).to_be_visible()
    fork = page.locator(".tree summary").first
    expect(fork).to_have_text(re.compile("12 schedules: right"))
    fork.focus()
    page.keyboard.press("Enter")
    expect(page.locator(".tree li li").first).to_be_visible()


def test_the_tree_leads_to_each_schedule(open_page: OpenPage) -> None:
    page = open_page()
    explored(page)
    tree = page.locator(".tree")
    expect(tree).to_contain_text("wrong (Outcome 1)")
    closed = tree.locator("details:not([open]) > summary")
    while closed.count():
        closed.first.click()
    tree.get_by_role("link", name="Schedule ABBBAA").click()
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_role("heading", name="Schedule ABBBAA: WRONG")).to_be_visible()


def test_a_printed_page_has_every_schedule_and_only_the_step_that_the_address_names(open_page: OpenPage) -> None:
    page = open_page()
    explored(page)
    hidden = page.locator(".tree details:not([open]) li").first
    expect(hidden).to_be_hidden()
    expect(page.locator(".move").first).to_be_visible()

    page.emulate_media(media="print")
    expect(hidden).to_be_visible()
    for downloads in page.locator(".downloads").all():
        expect(downloads).to_be_hidden()
    expect(page.locator("form").first).to_be_hidden()
    expect(page.locator(".move").first).to_be_hidden()
    page.goto("/lab/lost-update:naive/#run-1-2")
    expect(page.locator("#run-1-2")).to_be_visible()
    expect(page.locator("#run-1-1")).to_be_hidden()


@pytest.mark.parametrize("script", [True, False], ids=["script", "no-script"])
def test_the_arena_is_watched_and_its_results_read(open_page: OpenPage, script: bool) -> None:
    page = open_page(java_script_enabled=script, viewport={"width": 390, "height": 844})
    page.goto("/arena/")
    page.get_by_role("spinbutton", name="Seconds for each strategy").fill("2")
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_role("status")).to_have_text(re.compile(r"Arena: [1-9]\d* operation"))
    expect(page.get_by_role("row", name=re.compile(r"^conditional_update \d.* 0\.00$"))).to_be_visible()
    chart = page.get_by_role("img", name="Operations per second")
    expect(chart).to_be_visible(visible=script)
    expect(page.get_by_role("heading", name="Results")).to_be_visible()
    expect(chart).to_be_visible(visible=script)
    expect(page.get_by_role("row", name=re.compile("^pessimistic correct 0 0.00"))).to_be_visible()
    assert not overflows(page)
    assert "workers=4" in page.url


def test_the_chart_of_the_arena_has_lines_in_a_language_with_decimal_commas(open_page: OpenPage) -> None:
    page = open_page(locale="ar")
    page.goto("/arena/")
    page.locator("input[name=seconds]").fill("1")
    page.locator(".load button").click()
    expect(page.locator("section[aria-labelledby=result] .chart")).to_be_visible()
    assert page.locator("section[aria-labelledby=result] .chart").get_attribute("data-duration") == "1"


def test_a_slider_and_its_number_move_together(open_page: OpenPage) -> None:
    page = open_page()
    page.goto("/arena/")
    slider, number = (page.get_by_role(role, name="Workers") for role in ("slider", "spinbutton"))
    expect(slider).to_have_value("4")
    slider.focus()
    page.keyboard.press("ArrowRight")
    expect(number).to_have_value("5")
    number.fill("9")
    expect(slider).to_have_value("9")


# The front page and the race page in a real browser, wide and narrow, with and without script


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


def test_a_shared_link_leads_to_the_same_step(open_page: OpenPage) -> None:
    ada, bob = open_page(), open_page()
    explored(ada)
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
