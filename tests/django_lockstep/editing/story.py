"""What several tests of editing need."""

from datetime import timedelta
from typing import Any

from django.db.models import F

from django_lockstep.editing.models import CheckOut, EditLock
from django_lockstep.editing.results import EditResult, TableStatus


def statuses(result: EditResult) -> dict[str, str]:
    """Return the statuses of what is referred to, by name."""
    return {f"{row.table_name}:{row.record}".rstrip(":"): row.current_status for row in result.fk_current_status}


def expire(*results: EditResult) -> None:
    """Let these check-outs expire by turning the database's rows back, instead of waiting."""
    for result in results:
        rows = CheckOut.objects.filter(model=result.table, object_pk=result.record, ended_at=None)
        rows.update(since=F("since") - timedelta(hours=2), expires_at=F("expires_at") - timedelta(hours=2))


def held() -> set[tuple[str, str, Any]]:
    """Return everything that anybody holds: what, how, and whose."""
    locks = EditLock.objects.select_related("check_out__editor")
    return {(str(lock), lock.status, lock.check_out.editor.get_username()) for lock in locks}


def table(name: str, status: str) -> TableStatus:
    return TableStatus(table_name=name, current_status=status)
