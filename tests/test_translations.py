"""Every text that people see in a browser is translated, and the compiled catalogs are those of the sources."""

import gettext
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from django.core.management import call_command

from tests.support.pages import ROOT

PACKAGES = ("django_lockstep", "django_lockstep/lab", "accounts", "bank")
LANGUAGES = ("ar", "ja")
PLACEHOLDER = re.compile(r"%\(\w+\)[sd]|%[sd]|\{\w+\}")
needs_gettext = pytest.mark.skipif(not shutil.which("msgattrib"), reason="GNU gettext is not installed")


def catalog(package: str, language: str) -> Path:
    return ROOT / package / "locale" / language / "LC_MESSAGES" / "django.po"


def lines(command: str, *arguments: str) -> str:
    return subprocess.run([command, *arguments], capture_output=True, text=True, check=True).stdout


def entries(path: Path) -> dict[object, str]:
    with path.open("rb") as file:
        return dict(vars(gettext.GNUTranslations(file))["_catalog"])


@needs_gettext
@pytest.mark.parametrize("package", PACKAGES)
def test_makemessages_finds_nothing_new_and_nothing_that_is_gone(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / package
    shutil.copytree(ROOT / package, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.chdir(copy)
    call_command("makemessages", "--locale", "ar", "--locale", "ja", "--no-location", "-v", "0")
    for path in copy.glob("locale/*/LC_MESSAGES/django.po"):
        for what in ("--untranslated", "--only-fuzzy", "--only-obsolete"):
            assert lines("msgattrib", what, "--no-obsolete" if what != "--only-obsolete" else what, str(path)) == ""


@needs_gettext
@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("package", PACKAGES)
def test_the_compiled_catalog_is_that_of_the_source(package: str, language: str, tmp_path: Path) -> None:
    source = catalog(package, language)
    lines("msgfmt", "-o", str(tmp_path / "django.mo"), str(source))
    assert entries(source.with_suffix(".mo")) == entries(tmp_path / "django.mo")


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("package", PACKAGES)
def test_translations_have_the_placeholders_of_the_text(package: str, language: str) -> None:
    for text, translated in entries(catalog(package, language).with_suffix(".mo")).items():
        original = text[0] if isinstance(text, tuple) else str(text)
        assert translated or not original, original
        if original:
            assert sorted(PLACEHOLDER.findall(translated)) == sorted(PLACEHOLDER.findall(original)), original


@pytest.mark.django_db
@pytest.mark.parametrize(("language", "direction"), [("ar", "rtl"), ("ja", "ltr")])
def test_pages_have_the_language_and_direction_asked_for(admin_client: object, language: str, direction: str) -> None:
    page = admin_client.get("/admin/accounts/account/", headers={"accept-language": language})  # type: ignore[attr-defined]
    text = page.content.decode()
    assert f'lang="{language}"' in text
    assert f'dir="{direction}"' in text
