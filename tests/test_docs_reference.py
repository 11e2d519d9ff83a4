"""The API reference has every public name.

Public is what a package's ``__all__`` lists, and what a page imports or names by its dotted path. That Sphinx makes an
entry of each name of a module in the reference is checked when the documentation is built, in ``docs/conf.py``.
"""

import re
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pkgutil import resolve_name
from typing import Any

import pytest

from tests.support.pages import ROOT

DOCS = ROOT / "docs"
PACKAGES = (
    "django_lockstep",
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
