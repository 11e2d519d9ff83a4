"""The phrases of the text report."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.utils import timezone
from django.utils.translation import gettext as _

from django_lockstep.monitor.report import Session, Wait

gettext_noop = str  # marks texts that are translated where they are shown
_IDLE = {
    "idle": gettext_noop("idle (a session-level lock)"),
    "prepared": gettext_noop("neither committed nor rolled back"),
}
"""Explanations of the server's names of idle states that say too little."""


def session_name(session: Session) -> str:
    """Return how the report names the session."""
    if session.pid is None:
        return _("prepared transaction %(name)s") % {"name": repr(session.gid or "?")}
    kind = f" {session.backend}" if session.backend not in (None, "client backend") else ""
    application = f' "{session.application}"' if session.application else ""
    return f"pid {session.pid}{kind}{application}"


def situation(session: Session) -> str:
    """Return what a session that does not wait is doing, and whether it is the one to look at."""
    if session.hidden:
        return _("does not wait; its state is hidden from this role")
    if session.state is None:
        return _("has ended in the meantime")
    values = {"state": _(_IDLE.get(session.state, session.state)), "since": ""}
    if session.since:
        time = {"time": clock(session.since), "duration": duration(session.seconds)}
        values["since"] = _("since %(time)s (%(duration)s)") % time
    if session.is_idle:
        return _("LOOK HERE: does not wait and is %(state)s %(since)s") % values
    values["duration"] = duration(session.transaction_seconds)
    return _("does not wait and is %(state)s %(since)s; its transaction: %(duration)s") % values


def remedy(session: Session) -> str | None:
    """Return the statement that ends an idle session or prepared transaction; None for one that may be working."""
    if not session.is_idle or session.id == "prepared:None":
        return None
    if session.pid is None:
        return "ROLLBACK PREPARED '{}';".format((session.gid or "").replace("'", "''"))
    return f"SELECT pg_terminate_backend({session.pid});"


def describe_lock(wait: Wait) -> str:
    """Return what is waited for, with the requested mode."""
    mode = f" ({wait.mode})" if wait.mode else ""
    if wait.kind == "row":
        return _row(wait) + mode
    if wait.kind == "advisory":
        return _("advisory lock %(key)s") % {"key": wait.key} + mode
    if wait.kind == "transaction":
        return _("the end of an earlier transaction")
    place = wait.model or wait.table or _("(name unknown)")
    return f"{wait.kind} {place}{mode}"


def _row(wait: Wait) -> str:
    if wait.pk_unknown is None:
        return f"{wait.model or wait.table} pk={repr(wait.pk) if isinstance(wait.pk, str) else wait.pk}"
    table = wait.model or wait.table or _("an unknown table")
    return _("a row or unique value of %(table)s") % {"table": table} + f" ({_(wait.pk_unknown)})"


def duration(seconds: float | None) -> str:
    """Return a duration for people to read; below a minute to a tenth of a second."""
    if seconds is None:
        return _("for an unknown time")
    return f"{max(seconds, 0):.1f} s" if seconds < 60 else str(timedelta(seconds=round(seconds)))


def clock(moment: datetime) -> str:
    """Return the date and time in the project's time zone."""
    local = timezone.localtime(moment) if timezone.is_aware(moment) else moment
    return f"{local:%Y-%m-%d %H:%M:%S %Z}".rstrip()


def shortened(statement: str, *, room: int) -> str:
    """Return the statement in one line of at most ``room`` characters.

    It is cut in the middle, because WHERE and FOR UPDATE come last.
    """
    line = " ".join(statement.split())
    room = max(room, 20)
    if len(line) <= room:
        return line
    tail = (room - 5) * 2 // 3
    return f"{line[: room - 5 - tail]} ... {line[-tail:]}"


def printable(line: str) -> str:
    """Return the line without control characters, with which a statement could control the terminal."""
    return "".join(character if character.isprintable() else "?" for character in line)
