"""The report as text: which session to look at, and which ones wait behind it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_lockstep.monitor.report import AdvisoryLock, LockReport, Session, Wait
from django_lockstep.monitor.trees import Node, trees
from django_lockstep.monitor.wording import (
    clock,
    describe_lock,
    duration,
    printable,
    remedy,
    session_name,
    shortened,
    situation,
)

_STEP = "    "


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
