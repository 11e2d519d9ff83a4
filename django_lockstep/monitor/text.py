"""The report as text: which session to look at, and which ones wait behind it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_lockstep.monitor.report import AdvisoryLock, LockReport, Session, Wait
from django_lockstep.monitor.trees import Node, trees

_STEP = "    "
gettext_noop = str  # marks texts that are translated where they are shown
_IDLE = {
    "idle": gettext_noop("idle (a session-level lock)"),
    "prepared": gettext_noop("neither committed nor rolled back"),
}
"""Explanations of the server's names of idle states that say too little."""


def text(report: LockReport, *, width: int = 100) -> str:
    """Return the report; its first line is a summary. Statements are cut to ``width``, names are not."""
    lines = [_headline(report)]
    for root in trees(report.waits):
        lines += ["", *_root(root, width=width)]
    if report.advisory_locks:
        lines += ["", _("Advisory locks:"), *(_STEP + _advisory(lock) for lock in report.advisory_locks)]
    if report.limited:
        hidden = _("State and statement of some sessions of other roles are hidden; members of %(role)s see them.")
        lines += ["", hidden % {"role": "pg_read_all_stats"}]
    return "\n".join(printable(line) for line in lines)


def _headline(report: LockReport) -> str:
    place = _('%(time)s, database "%(name)s":') % {"time": clock(report.taken_at), "name": report.database}
    count = len(report.waits)
    if not count:
        return place + " " + _("no session waits for a lock.")
    said = ngettext(
        "%(number)s session waits, the longest for %(time)s.",
        "%(number)s sessions wait, the longest for %(time)s.",
        count,
    )
    return f"{place} {said % {'number': count, 'time': duration(max(wait.seconds for wait in report.waits))}}"


def _root(node: Node, *, width: int) -> Iterator[str]:
    role = _("role %(name)s from %(client)s") if node.session.client else _("role %(name)s")
    role = " (" + role % {"name": node.session.user, "client": node.session.client} + ")"
    yield f"{session_name(node.session)}{role if node.session.user else ''}: {_behind(node.behind)}"
    cycle = _("%(waits)s, in a cycle: a deadlock")
    yield _STEP + (cycle % {"waits": _waiting(node, node.wait)} if node.wait else situation(node.session))
    yield from _statement(node.session, indent=_STEP, width=width)
    if command := remedy(node.session):
        yield _STEP + _("to end it, losing what it has not committed:") + f" {command}"
    yield from _children(node, indent=_STEP, width=width)


def _children(node: Node, *, indent: str, width: int) -> Iterator[str]:
    for child in node.children:
        behind = f"; {_behind(child.behind)}" if child.behind else ""
        waiting = _waiting(child, child.wait) if child.wait else ""
        yield f"{indent}<- {session_name(child.session)} {waiting}{behind}"
        yield from _statement(child.session, indent=indent + _STEP, width=width)
        yield from _children(child, indent=indent + _STEP, width=width)


def _waiting(node: Node, wait: Wait) -> str:
    also = [_("%(number)s ahead in the queue") % {"number": node.ahead}] if node.ahead else []
    also += [_("also waits for %(session)s") % {"session": session_name(blocker)} for blocker in node.more_blockers]
    waits = _("waits %(time)s for %(lock)s") % {"time": duration(wait.seconds), "lock": describe_lock(wait)}
    return ", ".join([waits, *also])


def _statement(session: Session, *, indent: str, width: int) -> Iterator[str]:
    if session.statement:
        label = indent + _("last statement:") + " " if session.is_idle else indent
        yield label + shortened(session.statement, room=width - len(label))


def _behind(count: int) -> str:
    return ngettext("%(number)s waits behind it", "%(number)s wait behind it", count) % {"number": count}


def _advisory(lock: AdvisoryLock) -> str:
    held = _("held by %(sessions)s") % {"sessions": _names(lock.holders) or _("no session any more")}
    waiters = _("; waited for by %(sessions)s") % {"sessions": _names(lock.waiters)} if lock.waiters else ""
    return f"{lock.key}: {held} ({lock.mode}){waiters}"


def _names(sessions: Sequence[Session]) -> str:
    return ", ".join(session_name(session) for session in sessions)


def session_name(session: Session) -> str:
    """Return how the report names the session."""
    if session.pid is None:
        return _("prepared transaction (see pg_prepared_xacts)")
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
    """Return the statement that ends an idle session; None for one that may be working, or has no process."""
    return f"SELECT pg_terminate_backend({session.pid});" if session.is_idle and session.pid is not None else None


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
