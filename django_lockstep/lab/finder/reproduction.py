"""The text of a test file that reproduces a confirmed race in its project."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from django_lockstep.lab.finder.candidates import Candidate
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

    @classmethod
    def of(cls, item: Any) -> TestPlace:
        """Return the place of an item of pytest."""
        owner = item.cls.__name__ if getattr(item, "cls", None) is not None else ""
        return cls(item.module.__name__, getattr(item, "originalname", None) or item.name, owner)

    @classmethod
    def of_case(cls, test: Any) -> TestPlace:
        """Return the place of a test case of unittest."""
        module, owner, function = test.id().rsplit(".", 2)
        return cls(module, function, owner)


def with_test_file(candidate: Candidate, finding: Finding, places: Mapping[str, TestPlace]) -> Finding:
    """Return the finding; a confirmed one with a test file."""
    if finding.verdict != "confirmed":
        return finding
    return replace(finding, test_file=write_test_file(candidate, finding, places[finding.test]))


def write_test_file(candidate: Candidate, finding: Finding, place: TestPlace) -> str:
    """Return the file; it is to stand beside the test that it forks, whose fixtures it uses."""
    package, _, module = place.module.rpartition(".")
    imported = f"from {package} import {module}" if package else f"import {module}"
    forked = f'{module}.{place.owner}, "{place.function}"' if place.owner else f"{module}.{place.function}"
    options = [
        f'call="{candidate.unit}"' if candidate.unit_kind == "call" else "",
        f"number={finding.number}",
        f"after={finding.after}" if finding.after is not None else "",
        "two_users=True" if finding.two_users else "",
    ]
    return (
        f'"""{candidate.kind} in {candidate.unit}: fails as long as the race is there."""\n\n'
        f"from django_lockstep.lab.finder.witnesses import raced\n{imported}\n\n"
        f"{_name(candidate)} = raced({', '.join([forked, *filter(None, options)])})\n"
    )


def _name(candidate: Candidate) -> str:
    words = re.findall(r"[a-z0-9]+", candidate.unit.rpartition(".")[2].lower() or candidate.unit)
    return f"test_{'_'.join(words)}_does_not_race"
