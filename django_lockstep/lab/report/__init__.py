"""Which sessions wait for which others right now, in Django's terms."""

from django_lockstep.lab.report.as_json import as_json
from django_lockstep.lab.report.collect import lock_report, waits
from django_lockstep.lab.report.facts import AdvisoryLock, LockReport, Session, Wait
from django_lockstep.lab.report.text import text

__all__ = ["AdvisoryLock", "LockReport", "Session", "Wait", "as_json", "lock_report", "text", "waits"]
