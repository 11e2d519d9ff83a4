"""The documentation says something of every check and every setting."""

import ast
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
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
    page = (DOCS / "reference" / "checks.md").read_text()
    return re.findall(r"^\| `([\w.]+)`(?: †)? \| [^|]+ \| [^|]+ \|$", page, re.MULTILINE)


@pytest.mark.parametrize("setting", mentioned(SETTING))
def test_every_setting_has_its_section_with_its_default(setting: str) -> None:
    section = (DOCS / "reference" / "settings.md").read_text().partition(f"\n### {setting}\n")[2]
    assert section.strip().startswith("Default: ")
    assert f"{setting} = " in section.partition("\n##")[0]  # an example


def test_nothing_is_described_that_is_not_there() -> None:
    assert sorted(described_checks()) == mentioned(CHECK)
    settings = re.findall(r"^### (.*)$", (DOCS / "reference" / "settings.md").read_text(), re.MULTILINE)
    assert sorted(settings) == mentioned(SETTING)


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


@pytest.mark.parametrize("part", ["learn", "use", "prove", "measure"])
def test_a_part_has_five_to_seven_pages_beside_its_index(part: str) -> None:
    assert 5 <= len([*(DOCS / part).glob("*.md")]) - 1 <= 7


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: str(page.relative_to(DOCS)))
def test_a_page_is_read_in_minutes(page: Path) -> None:
    assert len(re.findall(r"\S*\w\S*", page.read_text())) <= 900


def questions() -> list[str]:
    """Return the questions with what follows each."""
    pages = [(DOCS / f"{name}.md").read_text() for name in ("questions", "more-questions")]
    return [part for page in pages for part in page.split("\n### ")[1:]]


@pytest.mark.parametrize("question", questions(), ids=lambda question: question.partition("\n")[0])
def test_each_question_has_code_and_then_a_sentence(question: str) -> None:
    assert re.match(r"[^\n]+\n\n```(python|sh)\n.*?\n```\n\n\S", question, re.DOTALL)


def test_each_term_of_the_glossary_names_its_source() -> None:
    rows = re.findall(r"^\| (.+) \| .+ \| (.+) \|$", (DOCS / "reference" / "glossary.md").read_text(), re.MULTILINE)[1:]
    assert len(rows) == 25
    assert [term.lower() for term, _ in rows] == sorted(term.lower() for term, _ in rows)
    assert all("](https://" in source for _, source in rows)


# The reference has every public name: what a package's ``__all__`` lists, and what a page imports or names by its path


PACKAGES = (
    "django_lockstep.admin",
    "django_lockstep.editing",
    "django_lockstep.errors",
    "django_lockstep.http",
    "django_lockstep.lab.explorer",
    "django_lockstep.leases",
    "django_lockstep.locking",
    "django_lockstep.monitor",
    "django_lockstep.stores",
    "accounts.contrib.dynamodb",
    "accounts.errors",
    "accounts.models",
    "accounts.operations",
    "accounts.strategies",
)
_CODE = re.compile(r"^( *)```python\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_IMPORT = re.compile(r"^from ((?:django_lockstep|accounts)[\w.]*) import ([\w, ]+)", re.MULTILINE)
_DOTTED = re.compile(r"\b(?:django_lockstep|accounts)(?:\.[a-z]\w*)*\.\w+\b(?=[`\"(])")
_DIRECTIVE = re.compile(r"^\.\. (auto\w+|py:data):: (\S+)\n((?:   :.*\n)*)", re.MULTILINE)
_CHECK = re.compile(r"\.[EW]\d{3}$")


def described() -> dict[str, Any]:
    """Return the objects that the reference describes, by their dotted names."""
    entries: dict[str, Any] = {}
    for page in (DOCS / "reference").glob("*.md"):
        for kind, target, options in _DIRECTIVE.findall(page.read_text("utf-8")):
            if kind == "automodule":
                module = import_module(target)
                left_out = re.findall(r"\w+", options.partition(":exclude-members:")[2])
                entries |= {
                    f"{target}.{name}": getattr(module, name) for name in module.__all__ if name not in left_out
                }
            elif kind != "py:data":  # the fixture, which is a function of pytest
                entries[target] = resolve_name(target)
    return entries


def named_by_pages() -> Iterator[str]:
    """Yield what the pages import, and the dotted names that they mention; modules and system checks are not names."""
    for page in (ROOT / "README.md", *sorted(DOCS.rglob("*.md"))):
        text = page.read_text("utf-8")
        for _, block in _CODE.findall(text):
            for module, names in _IMPORT.findall(block):
                yield from (f"{module}.{name.strip()}" for name in names.split(","))
        yield from (name for name in _DOTTED.findall(text) if not _CHECK.search(name))


def public_names() -> list[str]:
    listed = {f"{package}.{name}" for package in PACKAGES for name in import_module(package).__all__}
    return sorted(listed | {name for name in named_by_pages() if not _is_module(name)})


def _is_module(name: str) -> bool:
    package = name.rpartition(".")[0]
    return hasattr(import_module(package), "__path__") and find_spec(name) is not None


@pytest.fixture(scope="module")
def entries() -> dict[str, Any]:
    return described()


def test_all_packages_have_public_names() -> None:
    assert all(import_module(package).__all__ for package in PACKAGES)


@pytest.mark.parametrize("name", public_names())
def test_the_reference_describes_it(name: str, entries: dict[str, Any]) -> None:
    # Not resolve_name(): a package's function may have the name of the module that it is in.
    module, _, attribute = name.rpartition(".")
    value = getattr(import_module(module), attribute)
    assert [path for path, entry in entries.items() if entry is value and path.rpartition(".")[2] == attribute]
