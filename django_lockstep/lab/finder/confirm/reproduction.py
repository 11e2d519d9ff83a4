"""The text of a test file that reproduces a confirmed race in its project."""

from __future__ import annotations

import re
import unittest
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from django_lockstep.lab.finder.derive.candidates import Candidate
from django_lockstep.lab.finder.findings import Finding

__all__ = ["TestPlace", "with_test_file", "write_test_file"]


@dataclass(frozen=True, slots=True)
class TestPlace:
    """Where a test is defined."""

    __test__ = False  # pytest: this is none

    module: str
    function: str
    owner: str = ""
    """The class, if it is a method."""
    fixtures: tuple[str, ...] = ()
    """Functions of the module that are fixtures of the test."""
    is_complete: bool = True
    """Whether another file can run it: fixtures of a class stay in the class."""
    is_parametrized: bool = False
    """Whether marks of the function give it values; another test that runs it has no such marks."""
    is_case: bool = False
    """Whether it is a method of a unittest.TestCase, which Django's runner can run, too."""

    @classmethod
    def of(cls, item: Any) -> TestPlace:
        """Return the place of an item of pytest."""
        module, owner = getattr(item, "module", None), getattr(item, "cls", None)
        if module is None:  # such as a doctest
            return cls("", item.name, is_complete=False)
        import pytest  # projects on Django's runner may be without

        # Those of the module and of the class.
        here = item.getparent(pytest.Module).nodeid
        definitions = chain.from_iterable(item._fixtureinfo.name2fixturedefs.values())
        fixtures = {fixture.func.__name__ for fixture in definitions if fixture.baseid.startswith(here)}
        return cls(
            module.__name__,
            getattr(item, "originalname", None) or item.name,
            owner.__qualname__ if owner is not None else "",
            tuple(sorted(name for name in fixtures if vars(module).get(name) is not None)),
            is_complete=not any(owner and hasattr(owner, name) for name in fixtures),
            is_parametrized=item.get_closest_marker("parametrize") is not None,
            is_case=isinstance(owner, type) and issubclass(owner, unittest.TestCase),
        )

    @classmethod
    def of_case(cls, test: Any) -> TestPlace:
        """Return the place of a test case of unittest."""
        return cls(type(test).__module__, test._testMethodName, type(test).__qualname__, is_case=True)

    @property
    def package(self) -> str:
        return self.module.rpartition(".")[0]

    @property
    def short(self) -> str:
        """The module's name in a file that imports it from its package."""
        return self.module.rpartition(".")[2]

    def named(self, module: str) -> str:
        """Return the test as arguments, for a file in which its module has this name."""
        return f'{module}.{self.owner}, "{self.function}"' if self.owner else f"{module}.{self.function}"

    def goes_with(self, partner: TestPlace) -> bool:
        """Whether one file can run the other test before this one: their fixtures must not have the same names."""
        shared = self.module != partner.module and set(self.fixtures) & set(partner.fixtures)
        return partner.is_complete and not partner.is_parametrized and not shared


def with_test_file(candidate: Candidate, finding: Finding, places: Mapping[str, TestPlace]) -> Finding:
    """Return the finding; a confirmed one with a test file."""
    if finding.verdict != "confirmed":
        return finding
    partner = places[finding.partner_test] if finding.partner_test else None
    return replace(finding, test_file=write_test_file(candidate, finding, places[finding.test], partner))


def write_test_file(candidate: Candidate, finding: Finding, place: TestPlace, partner: TestPlace | None = None) -> str:
    """Return the file; it is to stand beside the test that it forks, whose fixtures it uses. Empty if it cannot run."""
    if not place.is_complete or (partner and not place.goes_with(partner)):
        return ""
    alias = "partner_tests" if partner and place.short == partner.short and place.module != partner.module else ""
    is_of_another = finding.after is not None and finding.after_call != finding.call
    options = [
        f'call="{finding.call}"' if finding.call else "",
        f"number={finding.number}" if finding.number else "",
        f"after={finding.after}" if finding.after is not None else "",
        f'after_call="{finding.after_call}"' if is_of_another else "",
        f"against={finding.against!r}" if finding.against else "",
        f"partner=({partner.named(alias or partner.short)}, {finding.partner_number})" if partner else "",
        f'partner_call="{finding.partner_call}"' if finding.partner_call else "",
    ]
    imported = [*_imports(place), *(_imports(partner, alias) if partner else ())]
    words = re.findall(r"[a-z0-9]+", candidate.unit.rpartition(".")[2].lower() or candidate.unit)
    test = f"raced({', '.join([place.named(place.short), *filter(None, options)])})"
    lines = [
        f'"""{candidate.kind} in {candidate.unit}: fails as long as the race is there."""',
        "",
        "from django_lockstep.lab.finder.confirm.witnesses import raced",
        *dict.fromkeys(imported),
        "",
        f"test_{'_'.join(words)}_does_not_race = {test}",
    ]
    if place.is_case and (partner is None or partner.is_case):
        lines[2:2] = ["from django.test import TransactionTestCase"]
        lines[-1:] = [
            "",
            f"class {''.join(map(str.capitalize, words))}RaceTests(TransactionTestCase):",
            f"    databases = {place.short}.{place.owner}.databases",
            f"    test_it_does_not_race = {test}",
        ]
    return "\n".join([*lines, ""])


def _imports(place: TestPlace, alias: str = "") -> Iterator[str]:
    renamed = f" as {alias}" if alias else ""
    yield f"from {place.package} import {place.short}{renamed}" if place.package else f"import {place.short}{renamed}"
    if place.fixtures:
        yield f"from {place.module} import {', '.join(place.fixtures)}  # noqa: F401  # fixtures"
