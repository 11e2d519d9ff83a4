"""Queries on a run for the search for anomalies: which actor read and wrote what, and when others could see it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from django_lockstep.lab.explorer.render.summaries import summarize
from django_lockstep.lab.explorer.results import Run, Step

__all__ = [
    "changes",
    "changes_between",
    "in_one_transaction",
    "may_see",
    "pairs",
    "read_twice",
    "reads",
    "reads_before",
    "same_transaction",
    "undone",
    "visible_from",
    "writes",
]

_LOCKING = re.compile(r" FOR (?:NO KEY |KEY )?(?:UPDATE|SHARE)\b.*$", re.IGNORECASE)


def reads(run: Run) -> list[Step]:
    return [step for step in run.steps if summarize(step).verb == "SELECT" and step.sqlstate is None]


def writes(run: Run, *verbs: str) -> list[Step]:
    """Return the writes that changed something and were not rolled back."""
    return [step for step in run.steps if summarize(step).verb in verbs and step.rows != 0 and not undone(run, step)]


def pairs(steps: list[Step]) -> Iterator[tuple[Step, Step]]:
    """Yield pairs of different actors, the earlier step first."""
    for index, later in enumerate(steps):
        yield from ((earlier, later) for earlier in steps[:index] if earlier.actor != later.actor)


def same_transaction(one: Step, other: Step) -> bool:
    """Whether both belong to one transaction."""
    return one.actor == other.actor and one.transaction == other.transaction is not None


def reads_before(run: Run, write: Step) -> list[Step]:
    """Return the reads that the write may be based on: not those of transactions that failed and were run again."""
    return [
        step
        for step in reads(run)
        if step.actor == write.actor
        and step.ended < write.begun
        and (same_transaction(step, write) or not undone(run, step))
        and summarize(step).table == summarize(write).table
    ]


def in_one_transaction(steps: list[Step]) -> Iterator[tuple[Step, Step]]:
    """Yield pairs of steps of one transaction, the earlier one first."""
    for index, later in enumerate(steps):
        yield from ((earlier, later) for earlier in steps[:index] if same_transaction(earlier, later))


def read_twice(run: Run) -> Iterator[tuple[Step, Step, Step]]:
    """Yield equal reads of one transaction with different results, and the change by another actor between them."""
    for first, second in in_one_transaction(reads(run)):
        # The same search, whether its rows are locked or not.
        same_text = _LOCKING.sub("", first.sql) == _LOCKING.sub("", second.sql)
        equal = same_text and first.arguments == second.arguments
        # Its own writes explain a difference as well: a transaction sees them at every level.
        own = any(first.begun < step.begun < second.begun and step.actor == first.actor for step in changes(run))
        if equal and not own and (first.rows, first.values) != (second.rows, second.values):
            meanwhile = changes_between(run, first, second)
            yield from ((first, second, between) for between in meanwhile if may_see(first, between))


def changes(run: Run) -> list[Step]:
    return writes(run, "UPDATE", "INSERT", "DELETE")


def changes_between(run: Run, first: Step, last: Step) -> Iterator[Step]:
    """Yield other actors' changes that became visible after the first step and no later than the last."""
    for step in changes(run):
        if step.actor != first.actor and first.ended < visible_from(run, step) <= last.ended:
            yield step


def may_see(reading: Step, write: Step) -> bool:
    """Whether the read may be about rows that the write changed, as far as their texts tell."""
    summary, changed = summarize(reading), summarize(write)
    if changed.verb == "INSERT":
        return summary.table == changed.table
    # A search by another column than the write's may find the row.
    return summary.may_touch(changed)


def visible_from(run: Run, step: Step) -> int:
    """Return the move at which the step's change became visible."""
    return max((other.ended for other in run.steps if same_transaction(step, other)), default=step.ended)


def undone(run: Run, step: Step) -> bool:
    """Whether the step failed, or its transaction was later rolled back, completely or to a savepoint."""
    later = [other for other in run.steps if same_transaction(step, other) and other.begun > step.begun]
    return step.sqlstate is not None or any(other.sql.startswith("ROLLBACK") for other in later)
