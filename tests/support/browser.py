"""Real browsers for tests: Debian's chromium where there is one, otherwise the one that playwright installs."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.contrib.auth import get_user_model
from django.test import Client
from playwright.sync_api import Browser, BrowserContext, Error, Page, expect, sync_playwright

from django_lockstep.lab.pages.store import open_store
from tests.support.sessions import PATIENCE, all_others_are_idle, until

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
OpenPage = Callable[..., Page]
_PATIENCE_MS = 60_000
"""How long a page may take to become as it should be, on a busy machine."""
RUN = 60_000
"""Milliseconds that a race in a page may take, which begins with a process and a database of its own."""


_RULES = {
    "runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]},
    "resultTypes": ["violations"],
}
_OTHERS = {"exclude": [[".breadcrumbs"], ["#changelist-search"], ["#swagger-ui"]]}
"""Parts that are Django's admin's, with links told by colour alone and a field named by a title, and Swagger UI's."""


def expect_no_run(page: Page) -> None:
    """Wait until the run that the page shows is over: a race is shown when it has ended, the run a moment later."""
    expect(page.get_by_role("heading", name="Running now")).to_be_hidden()


def overflows(page: Page) -> bool:
    """Whether the page scrolls sideways."""
    wide: bool = page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
    return wide


def serious_faults(page: Page) -> list[str]:
    """Return what axe-core finds serious or critical, by WCAG 2.1 A and AA and its own practices, with elements.

    Transitions are brought to their end first: half-way between two colour schemes a link has the contrast of neither.
    """
    page.evaluate("document.getAnimations().filter(it => it instanceof CSSTransition).forEach(it => it.finish())")
    violations = Axe().run(page, context=_OTHERS, options=_RULES).response["violations"]
    return [
        f"{page.url}: {violation['id']}, {violation['help']}: {node['html']}"
        for violation in violations
        if violation["impact"] in {"serious", "critical"}
        for node in violation["nodes"]
    ]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """One browser for a module.

    Playwright runs an event loop in the thread of the tests, which looks asynchronous to Django as long as it lives:
    one for the whole session would be in the way of every test that comes later.
    """
    chromium_path = shutil.which("chromium") or shutil.which("chromium-browser")
    with pytest.MonkeyPatch.context() as patch, sync_playwright() as playwright:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
        try:
            browser = playwright.chromium.launch(args=FLAGS, executable_path=chromium_path)
        except Error as error:
            pytest.skip(f"there is no chromium to test with: {error.message.splitlines()[0]}")
        expect.set_options(timeout=_PATIENCE_MS)
        with browser:
            yield browser


@pytest.fixture
def logged_in(live_server: Any, chromium: Browser) -> Iterator[Callable[..., Page]]:
    """Open a browser window in which somebody is logged in; each has cookies of its own.

    At the end nobody asks the server any more, so that no request meets the next test.
    """
    contexts: list[BrowserContext] = []

    def open_page(person: Any, **options: Any) -> Page:
        client = Client()
        client.force_login(person)
        session = {"name": "sessionid", "value": client.cookies["sessionid"].value, "url": live_server.url}
        context = chromium.new_context(base_url=live_server.url, **options)
        contexts.append(context)
        context.set_default_timeout(_PATIENCE_MS)
        context.add_cookies([session])  # type: ignore[list-item]
        return context.new_page()

    yield open_page
    for context in contexts:
        for page in context.pages:
            page.evaluate("navigator.sendBeacon = () => true")
        context.close()
    until(all_others_are_idle, "the server to have answered")


@pytest.fixture
def staff_page(logged_in: Callable[..., Page]) -> Callable[..., Page]:
    """Open a browser window in which a superuser of this name is logged in."""

    def open_page(name: str, **options: Any) -> Page:
        user, _ = get_user_model().objects.get_or_create(username=name, is_staff=True, is_superuser=True)
        return logged_in(user, **options)

    return open_page


@pytest.fixture
def open_page(live_server: Any, chromium: Browser, settings: Any, tmp_path: Path) -> Iterator[OpenPage]:
    """Open a window of a visitor without a login, who may run races; at its end nothing may have complained."""
    settings.LOCKSTEP_LAB_RUNS_IN_PAGES = settings.LOCKSTEP_LAB_PUBLIC = True
    settings.LOCKSTEP_LAB_LIVE_FOLDER = tmp_path / "live"
    contexts, said = [], []

    def open_page(**options: Any) -> Page:
        context = chromium.new_context(base_url=live_server.url, **options)
        context.set_default_timeout(RUN)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: said.append(str(error)))
        return page

    yield open_page
    for context in contexts:
        context.close()
    # The next test's run would be refused.
    until(lambda: (run := open_store().run()) is None or not run.active, "the run to end", patience=3 * PATIENCE)
    until(all_others_are_idle, "the server to have answered")
    assert said == []
