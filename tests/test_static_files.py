"""Every style and script that a page of the packages names is there."""

import re

import pytest
from django.contrib.staticfiles import finders

from tests.support.pages import ROOT

FILES = [path for room in ("accounts", "django_lockstep") for path in (ROOT / room).rglob("*")]
SOURCES = [path.read_text() for path in FILES if path.suffix in (".html", ".py")]
NAMED = sorted(
    {found for source in SOURCES for found in re.findall(r"[\"']([\w-]+/[\w./-]+\.(?:css|js))[\"']", source)}
)


@pytest.mark.parametrize("name", NAMED)
def test_it_is_there(name: str) -> None:
    assert finders.find(name)


def test_each_package_has_its_own() -> None:
    assert {"lockstep/admin.css", "lockstep/seen.js", "accounts/admin.css"} <= set(NAMED)


def test_the_library_names_none_of_the_accounts() -> None:
    pages = [path for path in (ROOT / "django_lockstep").rglob("*") if path.suffix in (".html", ".css", ".js")]
    assert [path.name for path in pages if "accounts" in path.read_text()] == []
