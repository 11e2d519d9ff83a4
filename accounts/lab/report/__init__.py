"""Who waits for whom right now, in Django's terms."""

from accounts.lab.report.as_json import as_json
from accounts.lab.report.facts import AdvisoryLock, LockReport, Session, Wait
from accounts.lab.report.reading import lock_report, waits
from accounts.lab.report.text import text

__all__ = ["AdvisoryLock", "LockReport", "Session", "Wait", "as_json", "lock_report", "text", "waits"]
