"""Which actor read and wrote what in a run, and when others could see it: what explanations are made of.

Rows are compared by the texts of statements, so that a condition by another column than the change's may match.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from django_lockstep.lab.explorer.render.summaries import summarize
from django_lockstep.lab.explorer.results import Run, Step

__all__ = [
    "changes",
    "changes_between",
    "in_one_transaction",
    "looks_before",
    "may_see",
    "misses",
    "of_one_actor",
    "pairs",
    "read_twice",
    "reads",
    "reads_before",
    "same_transaction",
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


def looks_before(run: Run, step: Step) -> list[Step]:
    """Return what the step may be based on: reads, and the conditions of UPDATE and DELETE, which look for rows too.

    Those of transactions that failed and were run again are left out.
    """
    return [
        look
        for look in run.steps
        if look.actor == step.actor
        and look.ended < step.begun
        and look.sqlstate is None
        and summarize(look).verb in {"SELECT", "UPDATE", "DELETE"}
        and (same_transaction(look, step) or not undone(run, look))
    ]


def reads_before(run: Run, step: Step) -> list[Step]:
    """Return the reads of the step's table that it may be based on."""
    table = summarize(step).table
    return [
        look for look in looks_before(run, step) if summarize(look).verb == "SELECT" and summarize(look).table == table
    ]


def in_one_transaction(steps: list[Step]) -> Iterator[tuple[Step, Step]]:
    """Yield pairs of steps of one transaction, the earlier step first."""
    return ((earlier, later) for earlier, later in of_one_actor(steps) if same_transaction(earlier, later))


def of_one_actor(steps: list[Step]) -> Iterator[tuple[Step, Step]]:
    """Yield pairs of steps of one actor, the earlier step first."""
    for index, later in enumerate(steps):
        yield from ((earlier, later) for earlier in steps[:index] if earlier.actor == later.actor)


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


def may_see(look: Step, change: Step) -> bool:
    """Whether the look may be about rows and columns that the other statement changed, as far as their texts tell."""
    summary, changed = summarize(look), summarize(change)
    if changed.verb == "INSERT":
        keys = {name: values for name, values in summary.keys.items() if name in changed.plain}
        return summary.table == changed.table and all(changed.sets[name] in values for name, values in keys.items())
    names = {*re.findall(r"\w+", look.sql), *(name for row in look.values for name in row)}
    # A condition by another column than the change's may match the row.
    return summary.may_touch(changed) and (changed.verb == "DELETE" or not names.isdisjoint(changed.sets))


def misses(run: Run, look: Step, change: Step) -> bool:
    """Whether the look may be about what another actor changed, and came before that could be seen."""
    # A statement that waited for a row reads its new version, but rows inserted meanwhile are not in its snapshot
    # (EvalPlanQual in PostgreSQL's executor).
    seen = look.begun if summarize(change).verb == "INSERT" else look.ended
    return look.actor != change.actor and seen < visible_from(run, change) and may_see(look, change)


def visible_from(run: Run, step: Step) -> int:
    """Return the move at which the step's change became visible."""
    return max((other.ended for other in run.steps if same_transaction(step, other)), default=step.ended)


def undone(run: Run, step: Step) -> bool:
    """Whether the step failed, or its transaction was later rolled back, completely or to a savepoint."""
    later = [other for other in run.steps if same_transaction(step, other) and other.begun > step.begun]
    return step.sqlstate is not None or any(other.sql.startswith("ROLLBACK") for other in later)
