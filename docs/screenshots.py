"""Pictures of the demo's pages for the documentation, light and dark: ``nox -s screenshots``.

Starts the demo on an embedded server of its own, and needs chromium.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from playwright.sync_api import Page, expect, sync_playwright

DOCS = Path(__file__).parent
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
_PATIENCE_MS = 120_000
"""A run begins with a process and a database of its own, the first one with the migrations."""


def front(page: Page) -> None:
    """Show no lock, a row lock and a version side by side, raced."""
    page.goto("/")
    page.get_by_role("button", name="Race them").click()
    expect(page.locator(".ending.right")).to_have_count(2)


def race(page: Page) -> None:
    """Show a race without protection: its outcomes, and the tree of its schedules."""
    page.goto("/lab/lost-update:naive/")
    page.get_by_role("button", name="Run every order").click()
    expect(page.get_by_text("Running now")).to_be_hidden()
    page.get_by_role("heading", name="Outcomes").evaluate("element => element.scrollIntoView()")


def arena(page: Page) -> None:
    """Show strategies under one load, after the first rounds."""
    page.goto("/arena/")
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_role("row", name=re.compile(r"^conditional_update [1-9]"))).to_be_visible()


PICTURES: dict[str, Callable[[Page], None]] = {"front": front, "race": race, "arena": arena}


@contextmanager
def demo() -> Iterator[str]:
    """Yield the address of the demo."""
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "BANK_PGDATA": str(Path(folder, "pgdata"))}
        command = [sys.executable, "manage.py", "demo", "--port", "0"]
        with subprocess.Popen(command, cwd=DOCS.parent, env=env, stdout=subprocess.PIPE, text=True) as server:  # noqa: S603
            try:
                yield _address(server)
            finally:
                server.send_signal(signal.SIGINT)


def _address(server: subprocess.Popen[str]) -> str:
    for line in server.stdout or ():
        if found := re.search(r"http://[\d.]+:\d+", line):
            return found.group(0)
    raise RuntimeError("the demo has not started")


def main() -> None:
    """Take every picture."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    with demo() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        for scheme in SCHEMES:
            for name, show in PICTURES.items():
                page = browser.new_page(base_url=address, color_scheme=scheme, viewport={"width": 1280, "height": 900})
                page.set_default_timeout(_PATIENCE_MS)
                expect.set_options(timeout=_PATIENCE_MS)
                show(page)
                page.screenshot(path=DOCS / "prove" / f"page-{name}-{scheme}.png")
                _stop(page)
                page.close()
        browser.close()


def _stop(page: Page) -> None:
    """End the run that goes on: the next picture needs one of its own."""
    if page.get_by_text("Running now").is_visible():
        page.get_by_role("button", name="Stop").click()
        expect(page.get_by_text("Running now")).to_be_hidden()


if __name__ == "__main__":
    main()
