"""What was examined and what was found, in the formats that other tools read: JUnit XML and SARIF."""

from django_lockstep.lab.explorer.render.ci_reports.check_result import CheckResult, CheckStep, Location
from django_lockstep.lab.explorer.render.ci_reports.junit import as_junit
from django_lockstep.lab.explorer.render.ci_reports.sarif import as_sarif

__all__ = ["CheckResult", "CheckStep", "Location", "as_junit", "as_sarif"]
