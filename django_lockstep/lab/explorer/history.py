"""What happened in a run: who read and wrote what, and from when on others saw it; asked when looking for anomalies."""

from __future__ import annotations

import re
from collections.abc import Iterator

from django_lockstep.lab.explorer.results import Run, Step
from django_lockstep.lab.explorer.summaries import summarize

__all__ = [
    "changes",
    "changes_between",
    "in_one_transaction",
    "may_see",
    "pairs",
    "read_twice",
    "reads",
    "reads_before",
    "together",
    "undone",
    "visible_from",
    "writes",
]

_LOCKING = re.compile(r" FOR (?:NO KEY |KEY )?(?:UPDATE|SHARE)\b.*$", re.IGNORECASE)


def reads(run: Run) -> list[Step]:
    """Return the reads that did not fail."""
    return [step for step in run.steps if summarize(step).verb == "SELECT" and step.sqlstate is None]


def writes(run: Run, *verbs: str) -> list[Step]:
    """Return the writes that changed something and were not rolled back."""
    return [step for step in run.steps if summarize(step).verb in verbs and step.rows != 0 and not undone(run, step)]


def pairs(steps: list[Step]) -> Iterator[tuple[Step, Step]]:
    """Yield pairs of different actors, the earlier step first."""
    for index, later in enumerate(steps):
        yield from ((earlier, later) for earlier in steps[:index] if earlier.actor != later.actor)


def together(one: Step, other: Step) -> bool:
    """Whether both are in one transaction."""
    return one.actor == other.actor and one.transaction == other.transaction is not None


def reads_before(run: Run, write: Step) -> list[Step]:
    """Return the reads that the write may rest on: not those of transactions that failed and were run again."""
    return [
        step
        for step in reads(run)
        if step.actor == write.actor
        and step.ended < write.begun
        and (together(step, write) or not undone(run, step))
        and summarize(step).table == summarize(write).table
    ]


def in_one_transaction(steps: list[Step]) -> Iterator[tuple[Step, Step]]:
    """Yield pairs of steps of one transaction, the earlier one first."""
    for index, later in enumerate(steps):
        yield from ((earlier, later) for earlier in steps[:index] if together(earlier, later))


def read_twice(run: Run) -> Iterator[tuple[Step, Step, Step]]:
    """Yield equal reads of one transaction that saw different things, with somebody else's change in between."""
    for first, second in in_one_transaction(reads(run)):
        equal = (_search(first), first.arguments) == (_search(second), second.arguments)
        own = any(first.begun < step.begun < second.begun and step.actor == first.actor for step in changes(run))
        if equal and not own and (first.rows, first.values) != (second.rows, second.values):
            meanwhile = changes_between(run, first, second)
            yield from ((first, second, between) for between in meanwhile if may_see(first, between))


def _search(step: Step) -> str:
    """Return what is searched for, whether the rows are locked or not."""
    return _LOCKING.sub("", step.sql)


def changes(run: Run) -> list[Step]:
    """Return every write that changed something and was not rolled back."""
    return writes(run, "UPDATE", "INSERT", "DELETE")


def changes_between(run: Run, first: Step, last: Step) -> Iterator[Step]:
    """Yield others' changes that became visible after one step and no later than another."""
    for step in changes(run):
        if step.actor != first.actor and first.ended < visible_from(run, step) <= last.ended:
            yield step


def may_see(reading: Step, write: Step) -> bool:
    """Whether the read was about rows that the write changed, as far as their texts tell."""
    summary, changed = summarize(reading), summarize(write)
    if changed.verb == "INSERT":
        return summary.table == changed.table
    # A search by another column than the write's may find the row.
    return summary.may_touch(changed)


def visible_from(run: Run, step: Step) -> int:
    """Return the move at which the step's change became visible."""
    return max((other.ended for other in run.steps if together(step, other)), default=step.ended)


def undone(run: Run, step: Step) -> bool:
    """Whether the step failed, or its transaction was rolled back after it, be it to a savepoint only."""
    later = [other for other in run.steps if together(step, other) and other.begun > step.begun]
    return step.sqlstate is not None or any(other.sql.startswith("ROLLBACK") for other in later)
