"""Why a run went wrong, in a sentence: the anomaly's name and the steps that make it one.

The names are those of H. Berenson et al., "A Critique of ANSI SQL Isolation Levels", SIGMOD 1995.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from accounts.lab.explorer.results import Run, Step

__all__ = ["explain"]

_TABLE = re.compile(r'\b(?:FROM|INTO|UPDATE)\s+"?(\w+)"?', re.IGNORECASE)


def explain(run: Run) -> str:
    """Return what happened, with the anomaly's name first, or "unexplained"; for runs that `replay` made."""
    for deadlock in run.deadlocks:
        circle = ", ".join(deadlock.actors)
        return f"deadlock: {circle} waited for each other; the server ended {deadlock.victim}'s transaction"
    for candidate in (_lost_update, _duplicate_insert, _unrepeatable_read, _write_skew):
        for sentence in candidate(run):
            return sentence
    return "unexplained"


def _lost_update(run: Run) -> Iterator[str]:
    """Look for a write of what somebody else has changed since the writer read it."""
    for write in _ended_well(run, "UPDATE"):
        read = _last_read(run, write)
        if read is None:
            continue
        for between in _between(run, read, write, "UPDATE"):
            yield (
                f"lost update: {write.actor} wrote {table_of(write)} from what it had read at step {read.begun + 1}"
                f"{_shown(read)}, which {between.actor} had changed in between, at step {between.begun + 1}"
            )


def _unrepeatable_read(run: Run) -> Iterator[str]:
    """Look for two equal reads of one actor that saw different things."""
    reads = list(_ended_well(run, "SELECT"))
    for index, second in enumerate(reads):
        for first in reads[:index]:
            same = (first.actor, first.sql, first.params) == (second.actor, second.sql, second.params)
            if same and first.values != second.values:
                kind = "non-repeatable read" if first.rows == second.rows else "phantom"
                yield (
                    f"{kind}: {second.actor} read {table_of(second)} at steps {first.begun + 1} and "
                    f"{second.begun + 1}, and what it saw changed in between"
                )


def _duplicate_insert(run: Run) -> Iterator[str]:
    """Look for two who searched for the same row, found none, and both inserted it."""
    inserts = list(_ended_well(run, "INSERT"))
    for insert in inserts:
        for other in inserts:
            if other.actor == insert.actor or table_of(other) != table_of(insert) or other.begun < insert.begun:
                continue
            reads = [_last_read(run, insert), _last_read(run, other)]
            if all(read is not None and read.rows == 0 and read.begun < insert.ended for read in reads):
                yield (
                    f"duplicate insert: {insert.actor} and {other.actor} both looked for a row of {table_of(insert)}, "
                    "found none, and inserted it"
                )


def _write_skew(run: Run) -> Iterator[str]:
    """Look for two who each read what the other one then wrote."""
    writes = [*_ended_well(run, "UPDATE"), *_ended_well(run, "INSERT"), *_ended_well(run, "DELETE")]
    for one in writes:
        for other in writes:
            if one.actor >= other.actor:
                continue
            first, second = _last_read(run, one), _last_read(run, other)
            if first and second and first.begun < _commit(run, other) and second.begun < _commit(run, one):
                yield (
                    f"write skew: {one.actor} and {other.actor} each read {table_of(first)} before the other one's "
                    "change was committed, and wrote by what they had read"
                )


def _ended_well(run: Run, word: str) -> Iterator[Step]:
    for step in run.steps:
        if step.sql.upper().startswith(word) and step.sqlstate is None and (word == "SELECT" or step.rows != 0):
            yield step


def _last_read(run: Run, write: Step) -> Step | None:
    """Return the read of the same table that the write may rest on."""
    reads = [
        step
        for step in _ended_well(run, "SELECT")
        if step.actor == write.actor and step.begun < write.begun and table_of(step) == table_of(write)
    ]
    return reads[-1] if reads else None


def _between(run: Run, read: Step, write: Step, word: str) -> Iterator[Step]:
    """Yield others' writes of the same row that became visible between the read and the write."""
    for step in _ended_well(run, word):
        inside = read.begun < _commit(run, step) <= write.ended
        if step.actor != write.actor and inside and table_of(step) == table_of(write) and _where(step) == _where(write):
            yield step


def _commit(run: Run, step: Step) -> int:
    """Return the move at which the step's change became visible."""
    ends = [other.ended for other in run.steps if other.actor == step.actor and other.sql == "COMMIT"]
    return min((end for end in ends if end > step.ended), default=step.ended)


def table_of(step: Step) -> str:
    """Return the first table that the statement names."""
    found = _TABLE.search(step.sql)
    return found[1] if found else "the database"


def _where(step: Step) -> str:
    """Return which rows the statement is about, as far as its text shows: the last parameter is the key."""
    return step.params.rpartition(",")[2].strip(" )]") or step.params


def _shown(step: Step) -> str:
    values = ", ".join(f"{name}={value}" for row in step.values[:1] for name, value in list(row.items())[:6])
    return f" ({values})" if values else ""
