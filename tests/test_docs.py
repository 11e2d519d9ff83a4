"""The documentation says something of every check and every setting."""

import ast
import inspect
import re
from textwrap import dedent
from typing import Any

import pytest
from django.core.management import get_commands

from accounts.models import Account
from tests.support.pages import ROOT

DOCS = ROOT / "docs"
SOURCES = [path.read_text() for package in ("django_lockstep", "accounts") for path in (ROOT / package).rglob("*.py")]
CHECK = r'"((?:lockstep|accounts)\.[EW]\d{3})"'
SETTING = r'"((?:LOCKSTEP|ACCOUNTS)_[A-Z_]+)"'


def mentioned(pattern: str) -> list[str]:
    return sorted({name for source in SOURCES for name in re.findall(pattern, source)})


def described_checks() -> list[str]:
    """Return the checks that have a row of a table, with what is wrong and what to do."""
    page = (DOCS / "use" / "checks.md").read_text()
    return re.findall(r"^\| `([\w.]+)`(?: †)? \| [^|]+ \| [^|]+ \|$", page, re.MULTILINE)


@pytest.mark.parametrize("setting", mentioned(SETTING))
def test_every_setting_has_its_section_with_its_default(setting: str) -> None:
    section = (DOCS / "use" / "settings.md").read_text().partition(f"\n### {setting}\n")[2]
    assert section.strip().startswith("Default: ")
    assert f"{setting} = " in section.partition("\n##")[0]  # an example


def test_nothing_is_described_that_is_not_there() -> None:
    assert sorted(described_checks()) == mentioned(CHECK)
    assert sorted(re.findall(r"^### (.*)$", (DOCS / "use" / "settings.md").read_text(), re.MULTILINE)) == mentioned(
        SETTING
    )


def test_every_command_has_its_options_in_the_reference() -> None:
    text = (DOCS / "reference" / "commands.md").read_text()
    packages = ("django_lockstep", "accounts")
    names = [name for name, app in get_commands().items() if str(app).partition(".")[0] in packages]
    assert sorted(re.findall(r"^## (.*)$", text, re.MULTILINE)) == sorted([*names, "pytest"])
    assert re.findall(r"command-options:: (.*)$", text, re.MULTILINE) == re.findall(r"^## (.*)$", text, re.MULTILINE)


@pytest.mark.parametrize("method", [Account.deposit, Account.try_deposit])
def test_the_readme_shows_the_two_idioms_as_they_stand_in_the_models(method: Any) -> None:
    source = dedent(inspect.getsource(inspect.unwrap(method)))
    (definition,) = ast.parse(source).body
    assert isinstance(definition, ast.FunctionDef)
    body = dedent("\n".join(source.splitlines()[definition.body[0].end_lineno :])).strip()
    readme = (ROOT / "README.md").read_text()
    assert f"```python\n# accounts/models.py\n{body}\n```" in readme
    assert len(readme.splitlines()) <= 160


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


def questions() -> list[str]:
    """Return the questions with what follows each."""
    pages = [(DOCS / "learn" / f"{name}.md").read_text() for name in ("questions", "more-questions")]
    return [part for page in pages for part in page.split("\n### ")[1:]]


@pytest.mark.parametrize("question", questions(), ids=lambda question: question.partition("\n")[0])
def test_each_question_has_code_and_then_a_sentence(question: str) -> None:
    assert re.match(r"[^\n]+\n\n```(python|sh)\n.*?\n```\n\n\S", question, re.DOTALL)


def test_all_that_people_ask_is_there() -> None:
    assert len(questions()) == 37


def test_each_term_of_the_glossary_names_its_source() -> None:
    rows = re.findall(r"^\| (.+) \| .+ \| (.+) \|$", (DOCS / "learn" / "glossary.md").read_text(), re.MULTILINE)[1:]
    assert len(rows) == 25
    assert [term.lower() for term, _ in rows] == sorted(term.lower() for term, _ in rows)
    assert all("](https://" in source for _, source in rows)
