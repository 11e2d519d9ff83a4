"""The documentation says something of every check and every setting."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
SOURCES = [path.read_text() for package in ("django_lockstep", "accounts") for path in (ROOT / package).rglob("*.py")]
CHECK = r'"((?:lockstep|accounts)\.[EW]\d{3})"'
SETTING = r'"((?:LOCKSTEP|ACCOUNTS)_[A-Z_]+)"'


def mentioned(pattern: str) -> list[str]:
    return sorted({found for source in SOURCES for found in re.findall(pattern, source)})


@pytest.mark.parametrize("identifier", mentioned(CHECK))
def test_every_check_has_its_section(identifier: str) -> None:
    assert f"\n## {identifier}\n" in (DOCS / "use" / "checks.md").read_text()


@pytest.mark.parametrize("setting", mentioned(SETTING))
def test_every_setting_has_its_section_with_its_default(setting: str) -> None:
    section = (DOCS / "use" / "settings.md").read_text().partition(f"\n## {setting}\n")[2]
    assert section.strip().startswith("Default: ")


def test_there_are_checks_and_settings_to_look_for() -> None:
    for package in ("lockstep", "accounts"):
        assert any(identifier.startswith(package) for identifier in mentioned(CHECK))
        assert any(setting.startswith(package.upper()) for setting in mentioned(SETTING))


def test_nothing_is_described_that_is_not_there() -> None:
    headings = re.findall(r"^## (.*)$", (DOCS / "use" / "checks.md").read_text(), re.MULTILINE)
    assert sorted(headings) == mentioned(CHECK)
    assert sorted(re.findall(r"^## (.*)$", (DOCS / "use" / "settings.md").read_text(), re.MULTILINE)) == mentioned(
        SETTING
    )


def architecture() -> list[str]:
    """Return the paths that the map names: of files, of folders, and short ones of the room that is spoken of."""
    return sorted(set(re.findall(r"`([\w/]+(?:\.py|\.md|/))`", (DOCS / "architecture.md").read_text())))


@pytest.mark.parametrize("name", architecture())
def test_every_path_of_the_map_exists(name: str) -> None:
    packages = (ROOT / package for package in ("django_lockstep", "accounts", "bank"))
    assert (ROOT / name).exists() or any(path for package in packages for path in package.rglob(name.rstrip("/")))


def test_the_map_is_linked_from_where_people_begin() -> None:
    for page in ("README.md", "CONTRIBUTING.md"):
        assert "docs/architecture.md" in (ROOT / page).read_text()
