"""Results of checks as JUnit XML, as CI systems show it: a test case for each, which fails unless its result is right.

One that is accepted, or was not examined, is skipped.
"""

from __future__ import annotations

from collections.abc import Iterable
from xml.etree import ElementTree as ET

from django_lockstep.lab.explorer.render.ci_reports.check_result import CheckResult
from django_lockstep.lab.explorer.render.text_width import clean

__all__ = ["as_junit"]


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
