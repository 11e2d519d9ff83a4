"""Results of checks, in the formats that other tools read: JUnit XML and SARIF."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree as ET

from django_lockstep.lab.explorer.render.text_width import clean

__all__ = ["CheckResult", "CheckStep", "Location", "as_junit", "as_sarif"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """A line of source code."""

    path: str
    """Relative to the project's root, or absolute."""
    line: int
    """From 1."""

    @classmethod
    def parse(cls, source: str) -> Location | None:
        """Return the location of a text such as ``shows/booking.py:12``; None for any other text."""
        path, _, line = source.rpartition(":")
        return cls(path=path, line=int(line)) if path and line.isdecimal() and int(line) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckStep:
    """One of the steps that lead to what was found."""

    actor: str
    """Who made it."""
    text: str
    """What it does, in a few words."""
    location: Location | None = None
    """The line that made it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of one check, such as a race that was explored."""

    name: str
    """What was examined."""
    ok: bool
    """Whether the result is as it should be."""
    kind: str = ""
    """What was found, such as ``lost update``; empty if there is nothing to report."""
    message: str = ""
    """What was found, in a sentence."""
    location: Location | None = None
    """The line where it breaks."""
    details: str = ""
    """Text of several lines, such as a timeline."""
    steps: tuple[CheckStep, ...] = ()
    """The steps that lead to it."""
    suppressed: str = ""
    """Why it is accepted, if it is."""
    skipped: str = ""
    """Why it was not examined, if it was not."""
    seconds: float = 0.0
    """How long it was examined."""


# JUnit XML, as CI systems show it: a test case for each check, which fails unless its result is right. One that is
# accepted, or was not examined, is skipped.


def as_junit(checks: Iterable[CheckResult], *, suite: str) -> str:
    """Return one test suite with this name."""
    found = list(checks)
    counts = {
        "name": clean(suite),
        "tests": str(len(found)),
        "failures": str(sum(not check.ok and not _why_skipped(check) for check in found)),
        "errors": "0",
        "skipped": str(sum(bool(_why_skipped(check)) for check in found)),
        "time": f"{sum(check.seconds for check in found):.3f}",
    }
    root = ET.Element("testsuites")
    element = ET.SubElement(root, "testsuite", counts)
    for check in found:
        _add_case(element, check, suite)
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode")


def _add_case(parent: ET.Element, check: CheckResult, suite: str) -> None:
    facts = {"classname": clean(suite), "name": clean(check.name), "time": f"{check.seconds:.3f}"}
    if check.location is not None:
        facts |= {"file": clean(check.location.path), "line": str(check.location.line)}
    case = ET.SubElement(parent, "testcase", facts)
    if why := _why_skipped(check):
        ET.SubElement(case, "skipped", {"message": clean(why)})
    elif not check.ok:
        failure = ET.SubElement(case, "failure", {"type": clean(check.kind), "message": clean(check.message)})
        failure.text = _clean_lines(check.details or check.message)
    elif check.kind:
        ET.SubElement(case, "system-out").text = _clean_lines(f"{check.message}\n{check.details}")


def _why_skipped(check: CheckResult) -> str:
    return f"suppressed: {check.suppressed}" if check.suppressed else check.skipped


def _clean_lines(text: str) -> str:
    """Return the text with its line breaks and columns, without characters that XML cannot hold."""
    # Word by word, because clean() makes one space of several.
    return "\n".join(" ".join(map(clean, line.split(" "))) for line in text.splitlines())


# SARIF 2.1.0 (OASIS, 2020), as code scanning of GitHub and editors show it.

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_TOOL = {
    "name": "django-lockstep",
    "informationUri": "https://github.com/django-lockstep/django-lockstep",
}


def as_sarif(checks: Iterable[CheckResult]) -> str:
    """Return one run: a result for each check with something to report, a rule for each kind.

    What is as it should be, such as a race that has to break, is a note, anything else an error. The steps are a thread
    flow for each actor.
    """
    found = [check for check in checks if check.kind]
    kinds = list(dict.fromkeys(check.kind for check in found))
    rules = [{"id": _rule_id(kind), "name": kind, "shortDescription": {"text": kind}} for kind in kinds]
    run = {
        "tool": {"driver": {**_TOOL, "rules": rules}},
        "columnKind": "unicodeCodePoints",
        "results": [_result(check, kinds.index(check.kind)) for check in found],
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


def _rule_id(kind: str) -> str:
    return kind.replace(" ", "-")


def _result(check: CheckResult, rule: int) -> dict[str, Any]:
    result = {
        "ruleId": _rule_id(check.kind),
        "ruleIndex": rule,
        "level": "note" if check.ok else "error",
        "message": {"text": f"{check.name}: {check.message}"},
        # The same race with the same anomaly is the same alert, wherever its lines have moved.
        "partialFingerprints": {"race/v1": f"{check.name}: {check.kind}"},
    }
    if check.suppressed:
        # Not in the source: a file of the project names the place.
        result["suppressions"] = [{"kind": "external", "justification": check.suppressed}]
    if check.location is not None:
        result["locations"] = [_location(check.location)]
    if check.steps:
        result["codeFlows"] = [{"threadFlows": list(_thread_flows(check.steps))}]
    return result


def _thread_flows(steps: Sequence[CheckStep]) -> Iterator[dict[str, Any]]:
    for actor in dict.fromkeys(step.actor for step in steps):
        own = [
            {"executionOrder": order, "location": {**_location(step.location), "message": {"text": step.text}}}
            for order, step in enumerate(steps, start=1)
            if step.actor == actor
        ]
        yield {"id": actor, "locations": own}


def _location(location: Location | None) -> dict[str, Any]:
    if location is None:
        return {}
    absolute = Path(location.path).is_absolute()
    artifact = {"uri": Path(location.path).as_uri()} if absolute else {"uri": quote(Path(location.path).as_posix())}
    # Relative paths are below the root of the checkout.
    artifact |= {} if absolute else {"uriBaseId": "%SRCROOT%"}
    return {"physicalLocation": {"artifactLocation": artifact, "region": {"startLine": location.line}}}
