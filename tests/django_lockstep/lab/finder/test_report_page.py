"""The page of a report in a browser."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from django_lockstep.lab.finder.report.files import write_reports
from tests.django_lockstep.lab.finder.test_reports import ACCEPTED, FINDINGS, report_of
from tests.support.browser import chromium, serious_faults

__all__ = ["chromium"]


@pytest.fixture
def address(tmp_path: Path) -> str:
    path = tmp_path / "races.html"
    write_reports(report_of(tmp_path, *FINDINGS, suppressions=ACCEPTED), path, None)
    return path.as_uri()


@pytest.fixture
def page(chromium: Browser, address: str) -> Page:
    page = chromium.new_page()
    page.goto(address)
    return page


def test_candidates_are_filtered_by_verdict_kind_and_text(page: Page) -> None:
    assert serious_faults(page) == []
    status = page.get_by_role("combobox", name="Verdict")
    shown = page.locator(".race:visible")
    expect(shown).to_have_count(4)

    status.select_option("not confirmed")
    expect(shown).to_have_count(1)
    expect(page.locator("output")).to_have_text("1 of 4 shown")
    status.select_option("")
    page.get_by_role("combobox", name="Kind").select_option("read-modify-write")
    expect(shown).to_have_count(3)
    page.get_by_role("searchbox", name="Text").fill("REFUND")
    expect(shown).to_have_count(1)
    page.get_by_role("searchbox", name="Text").fill("no such thing")
    expect(page.locator("output")).to_have_text("0 of 4 shown")


def test_the_test_is_copied(page: Page) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator(".race > summary").first.click()
    page.get_by_role("button", name="Copy the test").first.click()
    expect(page.locator(".copy + [role=status]").first).to_have_text("Copied.")

    assert page.evaluate("navigator.clipboard.readText()") == FINDINGS[1].test_file


def test_where_copying_is_not_allowed_the_test_is_selected(page: Page) -> None:
    page.evaluate("void (navigator.clipboard.writeText = () => Promise.reject())")
    page.locator(".race > summary").first.click()
    page.get_by_role("button", name="Copy the test").first.click()
    expect(page.locator(".copy + [role=status]").first).to_contain_text("Selected")

    assert page.evaluate("getSelection().toString().trim()") == FINDINGS[1].test_file.strip()


def test_without_javascript_everything_can_be_read(chromium: Browser, address: str) -> None:
    page = chromium.new_page(java_script_enabled=False)
    page.goto(address)
    expect(page.get_by_role("search")).to_be_hidden()
    expect(page.get_by_role("button", name="Copy the test")).to_have_count(0)
    page.get_by_text("POST refund/").first.click()

    expect(page.get_by_text("Suppressed: one cashier only")).to_be_visible()


def test_all_candidates_are_printed(page: Page) -> None:
    page.emulate_media(media="print")

    for finding in FINDINGS:
        expect(page.locator(f"#candidate-{finding.candidate.id} dl")).to_be_visible()
    expect(page.get_by_role("search")).to_be_hidden()
