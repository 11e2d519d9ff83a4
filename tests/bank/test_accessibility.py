"""axe-core finds nothing serious on the demo's pages: light and wide, dark and narrow."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Page, expect

from bank.demo_data import create_demo_data
from bank.models import Article
from tests.support.browser import chromium, logged_in, overflows, serious_faults, staff_page

pytestmark = pytest.mark.django_db(transaction=True)
__all__ = ["chromium", "logged_in", "staff_page"]

PAGES = [
    "/",
    "/lab/",
    "/lab/lost-update:naive/",
    "/lab/anomalies/",
    "/lab/anomaly:P4:read-committed/",
    "/lab/found/",
    "/arena/",
    "/overdrafts/",
    "/editing/",
    "/editing/api/docs",
    "/admin/",
    "/admin/accounts/account/",
    "/admin/accounts/account/add/",
    "/admin/bank/article/",
    "/admin/lockstep_editing/editlock/",
    "/admin/lockstep_monitor/lock/",
    "/admin/lockstep_leases/lease/",
]
# Colours depend on the one, what overflows on the other.
LOOKS: list[tuple[Literal["light", "dark"], int]] = [("light", 1280), ("dark", 390)]


@pytest.fixture
def page(staff_page: Callable[..., Page], settings: Any, tmp_path: Path) -> Page:
    settings.LOCKSTEP_LAB_RUNS_IN_PAGES = settings.LOCKSTEP_LAB_PUBLIC = True
    settings.LOCKSTEP_LAB_LIVE_FOLDER = tmp_path / "live"
    page = staff_page("ada")
    page.set_default_timeout(60_000)  # a race begins with a process and a database of its own
    return page


def assert_accessible(page: Page, *, may_overflow: bool = True) -> None:
    for colours, width in LOOKS:
        page.emulate_media(color_scheme=colours)
        page.set_viewport_size({"width": width, "height": 844})
        assert serious_faults(page) == [], (colours, width)
        assert may_overflow or not overflows(page), (page.url, width)


def test_every_room_with_the_demos_data(page: Page) -> None:
    create_demo_data()
    for path in [*PAGES, f"/admin/bank/article/{Article.objects.earliest('pk').pk}/change/"]:
        response = page.goto(path)
        assert response is not None
        assert response.status == 200, path
        assert_accessible(page, may_overflow=False)


@pytest.mark.parametrize("race", ["lost-update:naive", "anomaly:G0:serializable"])
def test_a_race_that_was_run(page: Page, race: str) -> None:
    page.goto(f"/lab/{race}/")
    page.get_by_role("button", name="Run every order").click()
    expect(page.get_by_role("heading", name="Every interleaving")).to_be_visible()
    assert_accessible(page)


def test_races_that_run(page: Page) -> None:
    page.goto("/lab/")
    page.get_by_role("button", name="Run all").click()
    expect(page.get_by_role("status")).to_contain_text(" of ")
    assert_accessible(page)
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_text("The last run was stopped")).to_be_visible()
    assert_accessible(page)


def test_an_arena_that_runs_and_has_run(page: Page) -> None:
    page.goto("/arena/")
    page.get_by_role("spinbutton", name="Seconds for each strategy").fill("2")
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_role("img", name="Operations per second")).to_be_visible()
    assert_accessible(page)
    expect(page.get_by_role("heading", name="Results")).to_be_visible()
    assert_accessible(page)
