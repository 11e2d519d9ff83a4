"""Which sessions wait for which others right now, in Django's terms."""

from django_lockstep.monitor.as_json import as_json
from django_lockstep.monitor.collect import lock_report, waits
from django_lockstep.monitor.report import AdvisoryLock, LockReport, Session, Wait
from django_lockstep.monitor.text import text

__all__ = ["AdvisoryLock", "LockReport", "Session", "Wait", "as_json", "lock_report", "text", "waits"]
