"""Pictures of the demo's pages for the documentation, and the front page's race as a GIF: ``nox -s screenshots``.

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
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Page, ViewportSize, expect, sync_playwright

DOCS = Path(__file__).parent
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
    """Show strategies under one load."""
    page.goto("/arena/")
    page.get_by_role("button", name="Start").click()
    results = page.get_by_role("heading", name="Results")
    expect(results).to_be_visible()
    results.evaluate("element => element.scrollIntoView()")


PICTURES: dict[str, Callable[[Page], None]] = {"front": front, "race": race, "arena": arena}
WIDE, PHONE = ViewportSize(width=1280, height=900), ViewportSize(width=390, height=844)
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light", "viewport": WIDE},
    "dark": {"color_scheme": "dark", "viewport": WIDE},
    "phone": {"color_scheme": "light", "viewport": PHONE},
    "arabic": {"color_scheme": "light", "viewport": WIDE, "locale": "ar"},
}
"""Of the last two only the front page is taken, which has been raced by then."""


def frames(page: Page) -> Iterator[tuple[bytes, int]]:
    """Yield the front page before, while and after the three are raced, then one step after the other, with times."""
    page.goto("/")
    yield page.screenshot(), 2000
    page.get_by_role("button", name="Race them").click()
    for _ in range(3):
        page.wait_for_timeout(300)
        yield page.screenshot(), 300
    expect(page.locator(".ending.right")).to_have_count(2)
    expect(page.get_by_text("Running now")).to_be_hidden()
    yield page.screenshot(), 3500
    column = page.locator(".approach").first
    column.locator(".source").first.evaluate("element => element.scrollIntoView()")
    yield page.screenshot(), 1500
    for _ in range(column.locator(".drawing.first .now > li").count() - 1):
        page.keyboard.press("ArrowRight")
        yield page.screenshot(), 1500


def animate(page: Page, path: Path) -> None:
    """Write a GIF of the front page's race: few colours, so that it stays small."""
    shots, times = zip(*frames(page), strict=True)
    images = [Image.open(BytesIO(shot)).convert("RGB").quantize(64, dither=Image.Dither.NONE) for shot in shots]
    images[0].save(path, save_all=True, append_images=images[1:], duration=times, loop=0, optimize=True)


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
        if address := re.search(r"http://[\d.]+:\d+", line):
            return address[0]
    raise RuntimeError("the demo has not started")


def main() -> None:
    """Take every picture."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with demo() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        expect.set_options(timeout=_PATIENCE_MS)
        for look, options in LOOKS.items():
            page = browser.new_page(base_url=address, **options)
            page.set_default_timeout(_PATIENCE_MS)
            if look in ("light", "dark"):
                animate(page, DOCS / "prove" / f"page-front-{look}.gif")
                for name, show in PICTURES.items():
                    show(page)
                    page.screenshot(path=DOCS / "prove" / f"page-{name}-{look}.png")
                    _stop(page)
            else:
                page.goto("/")
                page.screenshot(path=DOCS / "prove" / f"page-front-{look}.png")
            page.close()
        browser.close()


def _stop(page: Page) -> None:
    """End the run that goes on: the next picture needs one of its own."""
    if page.get_by_text("Running now").is_visible():
        page.get_by_role("button", name="Stop").click()
        expect(page.get_by_text("Running now")).to_be_hidden()


if __name__ == "__main__":
    main()
