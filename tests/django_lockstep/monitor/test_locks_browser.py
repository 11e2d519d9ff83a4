"""The page of locks in a real browser: it follows what happens, and is used by keyboard."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import OperationalError
from playwright.sync_api import Page, expect

from tests.django_lockstep.monitor.lock_situations import LockSituation, lock
from tests.support.browser import chromium, logged_in, serious_faults, staff_page

__all__ = ["chromium", "logged_in", "staff_page"]

PAGE = "/admin/lockstep_monitor/lock/"


@pytest.fixture
def waiting(group: Group, situation: LockSituation) -> "Callable[[str], Future[Any]]":
    """Have a session of this name wait for ``holder``."""
    situation.hold("holder", lock, Group, group.pk)
    return lambda name: situation.wait(name, lock, Group, group.pk)


def test_it_follows_what_happens_and_keeps_the_focus(
    staff_page: Callable[..., Page], waiting: "Callable[[str], Future[Any]]"
) -> None:
    first = waiting("first")
    page = staff_page("ada")
    page.goto(PAGE)
    boxes = page.locator("svg.waits rect")
    expect(boxes).to_have_count(2)
    cancel = page.get_by_role("link", name="Cancel the statement pid")
    assert serious_faults(page) == []
    cancel.focus()

    second = waiting("second")
    expect(boxes).to_have_count(3)
    expect(cancel.first).to_be_focused()

    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="pid", exact=False)).to_be_visible()
    assert serious_faults(page) == []
    page.get_by_role("button", name="Yes").press("Enter")
    expect(page.get_by_text("The server was asked to end it.")).to_be_visible()
    expect(boxes).to_have_count(2)
    with pytest.raises(OperationalError, match="canceling statement"):
        first.result(20)
    assert not second.done()


def test_without_script_it_reloads(staff_page: Callable[..., Page], waiting: "Callable[[str], Future[Any]]") -> None:
    waiting("first")
    page = staff_page("ada", java_script_enabled=False)
    page.goto(PAGE)
    waiting("second")
    expect(page.locator("svg.waits rect")).to_have_count(3)
