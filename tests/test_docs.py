"""The documentation builds, and says something of every check and every setting."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
SOURCES = [path.read_text() for room in ("accounts", "django_lockstep") for path in (ROOT / room).rglob("*.py")]


def mentioned(pattern: str) -> list[str]:
    return sorted({found for source in SOURCES for found in re.findall(pattern, source)})


def test_they_build_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "-b", "html", str(DOCS), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("identifier", mentioned(r'"((?:accounts|lockstep)\.[EW]\d{3})"'))
def test_every_check_has_its_section(identifier: str) -> None:
    assert f"\n## {identifier}\n" in (DOCS / "checks.md").read_text()


@pytest.mark.parametrize("setting", mentioned(r'settings, "((?:ACCOUNTS|LOCKSTEP)_\w+)"'))
def test_every_setting_has_its_section_with_its_default(setting: str) -> None:
    section = (DOCS / "settings.md").read_text().partition(f"\n## {setting}\n")[2]
    assert section.strip().startswith("Default: ")


def test_there_are_checks_and_settings_to_look_for() -> None:
    assert len(mentioned(r'"((?:accounts|lockstep)\.[EW]\d{3})"')) >= 8
    assert mentioned(r'settings, "((?:ACCOUNTS|LOCKSTEP)_\w+)"')
