"""The report as text: which session to look at, and which ones wait behind it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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

_LIMITED = "State and statement of some sessions of other roles are hidden; members of pg_read_all_stats see them."
_STEP = "    "


def text(report: LockReport, *, width: int = 100) -> str:
    """Return the report; its first line is a summary. Statements are cut to ``width``, names are not."""
    lines = [_headline(report)]
    for root in trees(report.waits):
        lines += ["", *_root(root, width=width)]
    if report.advisory_locks:
        lines += ["", "Advisory locks:", *(_STEP + _advisory(lock) for lock in report.advisory_locks)]
    if report.limited:
        lines += ["", _LIMITED]
    return "\n".join(printable(line) for line in lines)


def _headline(report: LockReport) -> str:
    place = f'{clock(report.taken_at)}, database "{report.database}":'
    count = len(report.waits)
    if not count:
        return f"{place} no session waits for a lock."
    longest = max(wait.seconds for wait in report.waits)
    return f"{place} {count} session{'s wait' if count > 1 else ' waits'}, the longest for {duration(longest)}."


def _root(node: Node, *, width: int) -> Iterator[str]:
    client = f" from {node.session.client}" if node.session.client else ""
    role = f" (role {node.session.user}{client})" if node.session.user else ""
    yield f"{session_name(node.session)}{role}: {_behind(node.behind)}"
    yield _STEP + (f"{_waiting(node, node.wait)}, in a cycle: a deadlock" if node.wait else situation(node.session))
    yield from _statement(node.session, indent=_STEP, width=width)
    if command := remedy(node.session):
        yield f"{_STEP}to end it, losing what it has not committed: {command}"
    yield from _children(node, indent=_STEP, width=width)


def _children(node: Node, *, indent: str, width: int) -> Iterator[str]:
    for child in node.children:
        behind = f"; {_behind(child.behind)}" if child.behind else ""
        waiting = _waiting(child, child.wait) if child.wait else ""
        yield f"{indent}<- {session_name(child.session)} {waiting}{behind}"
        yield from _statement(child.session, indent=indent + _STEP, width=width)
        yield from _children(child, indent=indent + _STEP, width=width)


def _waiting(node: Node, wait: Wait) -> str:
    also = [f"{node.ahead} ahead in the queue"] if node.ahead else []
    also += [f"also waits for {session_name(blocker)}" for blocker in node.more_blockers]
    return ", ".join([f"waits {duration(wait.seconds)} for {describe_lock(wait)}", *also])


def _statement(session: Session, *, indent: str, width: int) -> Iterator[str]:
    if session.statement:
        label = f"{indent}last statement: " if session.is_idle else f"{indent}"
        yield label + shortened(session.statement, room=width - len(label))


def _behind(count: int) -> str:
    return f"{count} wait behind it" if count != 1 else "1 waits behind it"


def _advisory(lock: AdvisoryLock) -> str:
    waiters = f"; waited for by {_names(lock.waiters)}" if lock.waiters else ""
    return f"{lock.key}: held by {_names(lock.holders) or 'no session any more'} ({lock.mode}){waiters}"


def _names(sessions: Sequence[Session]) -> str:
    return ", ".join(session_name(session) for session in sessions)
