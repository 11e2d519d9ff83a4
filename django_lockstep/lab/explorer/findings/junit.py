"""Findings as JUnit XML, as CI systems show it: a test case for each, which fails unless its result is right.

One that is accepted, or was not examined, is skipped.
"""

from __future__ import annotations

from collections.abc import Iterable
from xml.etree import ElementTree as ET

from django_lockstep.lab.explorer.findings.finding import Finding
from django_lockstep.lab.explorer.text_width import clean

__all__ = ["as_junit"]


def as_junit(findings: Iterable[Finding], *, suite: str) -> str:
    """Return one test suite with this name."""
    found = list(findings)
    counts = {
        "name": clean(suite),
        "tests": str(len(found)),
        "failures": str(sum(not finding.ok and not _why_skipped(finding) for finding in found)),
        "errors": "0",
        "skipped": str(sum(bool(_why_skipped(finding)) for finding in found)),
        "time": f"{sum(finding.seconds for finding in found):.3f}",
    }
    root = ET.Element("testsuites")
    element = ET.SubElement(root, "testsuite", counts)
    for finding in found:
        _add_case(element, finding, suite)
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode")


def _add_case(parent: ET.Element, finding: Finding, suite: str) -> None:
    facts = {"classname": clean(suite), "name": clean(finding.name), "time": f"{finding.seconds:.3f}"}
    if finding.location is not None:
        facts |= {"file": clean(finding.location.path), "line": str(finding.location.line)}
    case = ET.SubElement(parent, "testcase", facts)
    if why := _why_skipped(finding):
        ET.SubElement(case, "skipped", {"message": clean(why)})
    elif not finding.ok:
        failure = ET.SubElement(case, "failure", {"type": clean(finding.kind), "message": clean(finding.message)})
        failure.text = _clean_lines(finding.details or finding.message)
    elif finding.kind:
        ET.SubElement(case, "system-out").text = _clean_lines(f"{finding.message}\n{finding.details}")


def _why_skipped(finding: Finding) -> str:
    return f"suppressed: {finding.suppressed}" if finding.suppressed else finding.skipped


def _clean_lines(text: str) -> str:
    """Return the text with its line breaks and columns, without characters that XML cannot hold."""
    # Word by word, because clean() makes one space of several.
    return "\n".join(" ".join(map(clean, line.split(" "))) for line in text.splitlines())
