"""What was examined and what was found, in the formats that other tools read: JUnit XML and SARIF."""

from django_lockstep.lab.explorer.findings.finding import Finding, FindingStep, Location
from django_lockstep.lab.explorer.findings.junit import as_junit
from django_lockstep.lab.explorer.findings.sarif import as_sarif

__all__ = ["Finding", "FindingStep", "Location", "as_junit", "as_sarif"]
