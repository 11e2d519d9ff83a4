"""Why a run ended wrong, in a sentence: the anomaly's name and the steps that show it.

The names are those of H. Berenson et al., "A Critique of ANSI SQL Isolation Levels", SIGMOD 1995. There is no sentence
for a dirty read: PostgreSQL does not show uncommitted changes to other transactions at any isolation level (PostgreSQL
documentation, section 13.2), so that no run can contain one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from django_lockstep.lab.explorer.effects.statement_text import StatementText
from django_lockstep.lab.explorer.render.summaries import is_time, relevant_columns, summarize
from django_lockstep.lab.explorer.results import Deadlock, Run, Step

__all__ = ["Explanation", "changes", "explain", "find_explanation", "pairs", "reads", "writes"]

_BLOCKED_BY = re.compile(r"^(.+) waits for .+; blocked by (.+)\.$", re.MULTILINE)
_FOUND_NONE = {"0", "False", None}
"""What count(), exists() and an aggregate return without rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What happened in a run."""

    kind: str
    """The anomaly's name, ``deadlock``, ``constraint violation`` or ``unexplained``; empty for a run that ended
    right."""
    text: str
    """The sentence, with the name first."""
    step: Step | None = None
    """The step that breaks it."""

    @property
    def mark(self) -> str:
        """The label of that step in timelines."""
        return "deadlock, ended here" if self.kind == "deadlock" else f"here it breaks: {self.kind}"


def explain(run: Run) -> str:
    """Return what happened, with the anomaly's name first, or "unexplained"; for runs that `replay` made.

    A run that ended right is not an anomaly: it has a sentence only if it had a deadlock.
    """
    return find_explanation(run).text


def find_explanation(run: Run) -> Explanation:
    """Return what happened, and at which step; see `explain`."""
    for kind, find in {} if run.holds else _ANOMALIES.items():
        for step, sentence in find(run):
            return Explanation(kind=kind, text=f"{kind}: {sentence}", step=step)
    for deadlock in run.deadlocks:
        return _deadlock(run, deadlock)
    for step in [] if run.holds else [step for step in run.steps if step.constraint]:
        return _refused(step)
    kind = "" if run.holds else "unexplained"
    return Explanation(kind=kind, text=kind)


_Found = Iterator[tuple[Step, str]]


def _lost_update(run: Run) -> _Found:
    """Find a write of a column that another actor has changed since the writer read it (P4)."""
    for write in writes(run, "UPDATE"):
        summary = summarize(write)
        sources = [step for step in reads_before(run, write) if summarize(step).may_touch(summary)]
        # What was read last counts: an earlier attempt may have read, failed, and begun again.
        for source in [step for step in sources if _row(step, summary).keys() & summary.plain][-1:]:
            for between in changes_between(run, source, write):
                if summarize(between).same_row(summary):
                    yield from ((write, sentence) for sentence in _overwritten(write, source, between))


def _stale_check(run: Run) -> _Found:
    """Find a write that adds to a column which another actor has changed since the writer looked at it."""
    for write in writes(run, "UPDATE"):
        summary = summarize(write)
        for source in [step for step in reads_before(run, write) if _row(step, summary).keys() & summary.sets][-1:]:
            for between in changes_between(run, source, write):
                theirs, row = summarize(between), _row(source, summary)
                names = summary.sets.keys() & theirs.sets.keys() & row.keys() - summary.plain
                # A WHERE that names the column checks it again, on the row as it is.
                unchecked = [name for name in sorted(names) if not re.search(rf"\b{re.escape(name)}\b", summary.where)]
                if unchecked and theirs.same_row(summary):
                    name = unchecked[0]
                    yield (
                        write,
                        (
                            f"{write.actor} read {name} {_value(row[name])}, and {between.actor} had changed it when "
                            f"{write.actor} wrote {name} = {summary.sets[name]}"
                        ),
                    )


def _overwritten(write: Step, source: Step, between: Step) -> Iterator[str]:
    """Yield how the write overwrites another actor's change, columns that both set differently first."""
    mine, theirs, row = summarize(write), summarize(between), _row(source, summarize(write))
    both = [name for name in mine.sets if name in mine.plain and name in theirs.sets and not is_time(mine.sets[name])]
    for name in sorted(both, key=lambda name: mine.sets[name] == theirs.sets[name]):
        if name not in row or theirs.sets[name] == row[name]:
            continue
        changed = f"to {_value(theirs.sets[name])}" if name in theirs.plain else f"({name} = {theirs.sets[name]})"
        how = "as it had read it" if mine.sets[name] == row[name] else f"computed from {_value(row[name])}"
        yield (
            f"{write.actor} wrote {name} {_value(mine.sets[name])} {how}, which {between.actor} had changed {changed} "
            "in between"
        )


def _row(source: Step, summary: StatementText) -> dict[str, str]:
    """Return the row that was read and that the other statement is about, with NULL as text."""
    for row in source.values:
        if all(row[name] in values for name, values in summary.keys.items() if name in row):
            return {name: "NULL" if value is None else value for name, value in row.items()}
    return {}


def _unrepeatable_read(run: Run) -> _Found:
    """Find a row that a transaction read twice, with a change by another actor in between (P2)."""
    for first, second, between in read_twice(run):
        if first.rows != second.rows or summarize(between).verb != "UPDATE":
            continue
        for old, new in zip(first.values, second.values, strict=False):
            before, after = relevant_columns(old, first, run), relevant_columns(new, second, run)
            for name in (name for name in before if before[name] != after.get(name)):
                yield (
                    second,
                    (
                        f"{second.actor} read {name} {_value(before[name])} at step {first.begun + 1} and "
                        f"{_value(after.get(name))} at step {second.begun + 1} of one transaction, because "
                        f"{between.actor} had changed it in between"
                    ),
                )


def _phantom(run: Run) -> _Found:
    """Find a search that a transaction made twice, with other rows the second time (P3)."""
    for first, second, between in read_twice(run):
        verb = {"INSERT": "inserted", "DELETE": "deleted"}.get(summarize(between).verb, "changed")
        found = [_found(step) for step in (first, second)]
        yield (
            second,
            (
                f"{second.actor} looked for {summarize(second).table} {summarize(second).where}".rstrip()
                + f" twice in one transaction and found {found[0]} at step {first.begun + 1} and {found[1]} at step "
                f"{second.begun + 1}, because {between.actor} had {verb} a row in between"
            ),
        )


def _found(step: Step) -> str:
    return ", ".join(f"{name} {value}" for name, value in step.values[0].items()) if _single(step) else f"{step.rows}"


def _single(step: Step) -> bool:
    return step.rows == 1 and len(step.values[0]) == 1 if step.values else False


def _duplicate_insert(run: Run) -> _Found:
    """Find two actors that searched for the same row, found none, and both inserted it."""
    for one, other in pairs(writes(run, "INSERT")):
        for search in reads_before(run, other)[-1:]:
            wanted = {name: value for name, (value, *more) in _sorted_keys(summarize(search)) if not more}
            twice = wanted and all(_inserts(insert, wanted) for insert in (one, other))
            blind = _found_none(search) and search.ended < visible_from(run, one)
            if twice and blind and any(_found_none(step) for step in reads_before(run, one)[-1:]):
                row = ", ".join(f"{name}={_value(value)}" for name, value in wanted.items())
                both = " and ".join(sorted([one.actor, other.actor]))
                yield (
                    other,
                    f"{both} both looked for a row of {summarize(one).table} with {row}, found none, and inserted it",
                )


def _sorted_keys(summary: StatementText) -> list[tuple[str, list[str]]]:
    return [(name, sorted(values)) for name, values in summary.keys.items()]


def _inserts(step: Step, wanted: Mapping[str, str]) -> bool:
    sets = summarize(step).sets
    return all(sets.get(name) == value for name, value in wanted.items())


def _found_none(step: Step) -> bool:
    return step.rows == 0 or (_single(step) and set(step.values[0].values()) <= _FOUND_NONE)


def _read_skew(run: Run) -> _Found:
    """Find a transaction that read one row before and another one after a change of both (A5A)."""
    for first, second in in_one_transaction(reads(run)):
        # One row read twice: that would be a non-repeatable read.
        if summarize(first).may_touch(summarize(second)):
            continue
        meanwhile = list(changes_between(run, first, second))
        for one in (step for step in meanwhile if may_see(first, step)):
            if any(may_see(second, other) and same_transaction(one, other) for other in meanwhile):
                sentence = (
                    f"{first.actor} read {_rows(first)} before, and {_rows(second)} after {one.actor} changed both"
                )
                yield second, sentence


def _write_skew(run: Run) -> _Found:
    """Find two actors that each read what the other one then wrote, in different rows (A5B)."""
    for one, other in pairs(changes(run)):
        # Both wrote one row: that would be a lost update.
        if summarize(one).same_row(summarize(other)):
            continue
        mine, theirs = _missed(run, one, other), _missed(run, other, one)
        if mine and theirs:
            yield (
                other,
                (
                    f"{one.actor} and {other.actor} each read {_tables(mine, theirs)} before the other one's change "
                    f"was committed, and based their writes on that: {_change(one)} and {_change(other)}"
                ),
            )


def _missed(run: Run, write: Step, other: Step) -> Step | None:
    """Return the writer's last read of what the other one changed, if it came before that change was visible."""
    reads = [step for step in reads_before(run, write) if may_see(step, other)]
    return next((step for step in reads[-1:] if step.ended < visible_from(run, other)), None)


def _deadlock(run: Run, deadlock: Deadlock) -> Explanation:
    closing = [step for step in run.steps if step.actor == deadlock.victim and step.sqlstate == "40P01"]
    waits = []
    for actor, blocker in _BLOCKED_BY.findall(deadlock.detail):
        waiting = [step for step in run.steps if step.actor == actor and step.waited_for]
        step = next(iter(closing if closing and actor == deadlock.victim else waiting), None)
        waits.append(f"{actor} waited for {blocker}" + (f" to release {step.waited_on or _rows(step)}" if step else ""))
    cycle = ", ".join(waits) or f"{', '.join(deadlock.actors)} waited for each other"
    text = f"deadlock: {cycle}; the server ended {deadlock.victim}'s transaction"
    return Explanation(kind="deadlock", text=text, step=closing[0] if closing else None)


def _refused(step: Step) -> Explanation:
    """Name the constraint and the statement that it refused."""
    kind = "constraint violation"
    text = f"{kind}: {step.constraint} refused {step.actor}'s {summarize(step).verb} {summarize(step).table}".rstrip()
    return Explanation(kind=kind, text=text, step=step)


_ANOMALIES: Mapping[str, Callable[[Run], _Found]] = {
    "duplicate insert": _duplicate_insert,
    "lost update": _lost_update,
    "non-repeatable read": _unrepeatable_read,
    "phantom": _phantom,
    "read skew": _read_skew,
    "write skew": _write_skew,
    "stale check": _stale_check,
}
"""The finder of each anomaly; the more specific anomalies come first."""


def _rows(step: Step) -> str:
    summary = summarize(step)
    keys = " ".join(f"{name}={'|'.join(values)}" for name, values in _sorted_keys(summary))
    return f"{summary.table} {keys or summary.where}".rstrip()


def _tables(*steps: Step) -> str:
    return " and ".join(dict.fromkeys(summarize(step).table for step in steps))


def _change(step: Step) -> str:
    summary = summarize(step)
    sets = ", ".join(f"{name} = {value}" for name, value in summary.sets.items() if not is_time(value))
    return f"{step.actor} {summary.verb} {_rows(step)}" + (f" ({sets})" if sets else "")


def _value(value: str | None) -> str:
    return "NULL" if value is None else value or "''"


# Which actor read and wrote what, and when others could see it.

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
