"""Why a run ended wrong, in a sentence: the anomaly's name and the steps that show it.

The names are those of H. Berenson et al., "A Critique of ANSI SQL Isolation Levels", SIGMOD 1995. There is no sentence
for a dirty read: PostgreSQL does not show uncommitted changes to other transactions at any isolation level (PostgreSQL
documentation, section 13.2), so that no run can contain one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from django_lockstep.lab.explorer.effects.statement_text import StatementText
from django_lockstep.lab.explorer.render.conflicts import (
    changes,
    changes_between,
    in_one_transaction,
    looks_before,
    may_see,
    misses,
    of_one_actor,
    pairs,
    read_twice,
    reads,
    reads_before,
    same_transaction,
    visible_from,
    writes,
)
from django_lockstep.lab.explorer.render.summaries import is_time, relevant_columns, summarize
from django_lockstep.lab.explorer.results import Deadlock, Run, Step

__all__ = ["Explanation", "explain", "find_explanation"]

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
    def remedy(self) -> str:
        """What would prevent it; empty if that is not known."""
        return _REMEDIES.get(self.kind, "")

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
    for kind, find in () if run.holds else _ANOMALIES:
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
        for source in [step for step in sources if _values(write, _row(step, summary))][-1:]:
            for between in changes_between(run, source, write):
                if summarize(between).same_row(summary):
                    yield from ((write, sentence) for sentence in _overwritten(write, source, between))


def _values(write: Step, row: Mapping[str, str]) -> dict[str, str]:
    """Return the values that the write gives to columns of this row, computed outside of the server."""
    summary = summarize(write)
    values = {name: value for name, value in summary.sets.items() if name in summary.plain and name in row}
    # bulk_update() sends a CASE with a value for each key.
    keys = {row.get(column) for column in summary.keys}
    branches = [(name, case) for name, value in summary.assignments.items() if name in row for case in value.cases]
    return values | {name: write.arguments[new] for name, (key, new) in branches if write.arguments[key] in keys}


def _stale_choice(run: Run) -> _Found:
    """Find a write of a row by its key although the condition by which the row was chosen is no longer true."""
    for write in writes(run, "UPDATE", "DELETE"):
        summary = summarize(write)
        for source in reads_before(run, write)[-1:] if summary.keys else []:
            chosen = {name: values for name, values in summarize(source).keys.items() if name not in summary.keys}
            for between in changes_between(run, source, write) if _row(source, summary) else ():
                theirs = summarize(between)
                for name in sorted(chosen.keys() & theirs.sets):
                    if theirs.same_row(summary) and theirs.sets[name] not in chosen[name]:
                        sentence = (
                            f"{write.actor} chose {_rows(write)} by {name} = {'|'.join(sorted(chosen[name]))}, and "
                            f"{between.actor} had changed {name} when {write.actor} wrote it{_at(source, write)}"
                        )
                        yield write, sentence


def _stale_lock(run: Run) -> _Found:
    """Find a row that was read before it was locked, and changed in between."""
    for lock in [step for step in reads(run) if summarize(step).locking]:
        locked = {name: value for row in lock.values[:1] for name, value in row.items()}
        for source in [step for step in reads_before(run, lock) if summarize(step).may_touch(summarize(lock))][-1:]:
            # Where the row was chosen by a condition, that is what is known of it.
            chosen = {name: "|".join(values) for name, values in _sorted_keys(summarize(source))}
            before = _row(source, summarize(lock)) | chosen
            for between in changes_between(run, source, lock):
                for name in [name for name in locked if before.get(name, locked[name]) != locked[name]]:
                    yield from _based_on(run, name, lock=lock, source=source, between=between, value=before[name])


def _based_on(run: Run, name: str, *, lock: Step, source: Step, between: Step, value: str) -> _Found:
    """Yield the write of a column under a lock if the column was changed after it was read, and before the lock."""
    later = [step for step in writes(run, "UPDATE") if step.actor == lock.actor and step.begun > lock.ended]
    for write in [step for step in later if summarize(step).same_row(summarize(between))][:1]:
        if name in summarize(write).sets and name in summarize(between).sets:
            sentence = (
                f"{write.actor} read {name} {_value(value)} before it locked the row{_at(source, lock)}; "
                f"{between.actor} had changed it in between, and {write.actor} wrote "
                f"{name} = {summarize(write).sets[name]}"
            )
            yield write, sentence


def _vain_write(run: Run) -> _Found:
    """Find a write that matched no row any more, after which its actor went on as if it had."""
    for write in [step for step in run.steps if step.rows == 0 and summarize(step).verb in {"UPDATE", "DELETE"}]:
        for source in reads_before(run, write)[-1:]:
            later = [step for step in run.steps if step.actor == write.actor and step.begun > write.ended]
            # Whoever reads again, or rolls back, has noticed.
            follows = [step for step in later if step.sql.split()[0] not in {"SAVEPOINT", "RELEASE", "COMMIT"}][:1]
            for between in changes_between(run, source, write):
                if summarize(between).may_touch(summarize(write)) and follows in [[step] for step in changes(run)]:
                    sentence = (
                        f"{write.actor} read {_rows(source)}, and {between.actor} had changed it when {write.actor}'s "
                        f"{summarize(write).verb} found no row{_at(source, write)}; {write.actor} went on with "
                        f"{summarize(follows[0]).verb} {summarize(follows[0]).table} all the same"
                    )
                    yield write, sentence


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
                            f"{write.actor} wrote {name} = {summary.sets[name]}{_at(source, write)}"
                        ),
                    )


def _overwritten(write: Step, source: Step, between: Step) -> Iterator[str]:
    """Yield how the write overwrites another actor's change, columns that both set differently first."""
    row = _row(source, summarize(write))
    mine, theirs, sets = _values(write, row), _values(between, row), summarize(between).sets
    both = [name for name in mine if name in sets and not is_time(mine[name])]
    for name in sorted(both, key=lambda name: mine[name] == theirs.get(name)):
        if theirs.get(name) == row[name]:
            continue
        changed = f"to {_value(theirs[name])}" if name in theirs else f"({name} = {sets[name]})"
        how = "as it had read it" if mine[name] == row[name] else f"computed from {_value(row[name])}"
        yield (
            f"{write.actor} wrote {name} {_value(mine[name])} {how}, which {between.actor} had changed {changed} "
            f"in between{_at(source, write)}"
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
        # An UPDATE that unsets the current row looks for it, and may find an older one.
        searches = [_searches(run, insert)[-1:] for insert in (one, other)]
        for first, search in zip(*searches, strict=False):
            keys = {name: value for name, (value, *more) in _sorted_keys(summarize(search)) if not more}
            twice = keys and all(_inserts(insert, keys) for insert in (one, other))
            read = [step for step in (first, search) if summarize(step).verb == "SELECT"]
            if twice and misses(run, search, one) and all(map(_found_none, read)):
                row = ", ".join(f"{name}={_value(value)}" for name, value in keys.items())
                both = " and ".join(sorted([one.actor, other.actor]))
                none = "found none" if all(map(_found_none, (first, search))) else "did not see the other one's"
                sentence = (
                    f"{both} both looked for a row of {summarize(one).table} with {row}, {none}, and inserted it"
                    + _at(search, other)
                )
                yield other, sentence


def _searches(run: Run, insert: Step) -> list[Step]:
    return [look for look in looks_before(run, insert) if summarize(look).table == summarize(insert).table]


def _sorted_keys(summary: StatementText) -> list[tuple[str, list[str]]]:
    return [(name, sorted(values)) for name, values in summary.keys.items()]


def _inserts(step: Step, keys: Mapping[str, str]) -> bool:
    sets = summarize(step).sets
    return all(sets.get(name) == value for name, value in keys.items())


def _found_none(step: Step) -> bool:
    return step.rows == 0 or (_single(step) and set(step.values[0].values()) <= _FOUND_NONE)


def _read_skew(run: Run, together: Callable[[list[Step]], Iterator[tuple[Step, Step]]] = in_one_transaction) -> _Found:
    """Find an actor that read one row before and another row after a change of both (A5A)."""
    for first, second in together(reads(run)):
        again = [step for step in reads(run) if step.begun > first.begun and _same_search(first, step)]
        # One row read twice: that would be a non-repeatable read. The first row read again: that is another attempt.
        if again or summarize(first).may_touch(summarize(second)):
            continue
        meanwhile = list(changes_between(run, first, second))
        for before in (step for step in meanwhile if may_see(first, step)):
            if any(may_see(second, after) and before.actor == after.actor for after in meanwhile):
                sentence = (
                    f"{first.actor} read {_rows(first)} before, and {_rows(second)} after {before.actor} changed "
                    f"both{_at(first, second)}"
                )
                yield second, sentence


def _same_search(first: Step, second: Step) -> bool:
    return (first.actor, first.sql, first.arguments) == (second.actor, second.sql, second.arguments)


def _out_of_order(run: Run) -> _Found:
    """Find a reader of rows in the order of their keys that saw a higher key before a lower key was committed."""
    inserts = [step for step in writes(run, "INSERT") if _generated_key(step).isdecimal()]
    for low, high in pairs(sorted(inserts, key=lambda step: int(_generated_key(step)))):
        for look in [step for step in reads(run) if re.search("ORDER BY| > ", step.sql)]:
            own = same_transaction(look, high) or look.actor == high.actor
            seen = look.begun > (high.ended if own else visible_from(run, high) - 1) and may_see(look, high)
            if seen and summarize(low).table == summarize(high).table and misses(run, look, low):
                sentence = (
                    f"{look.actor} read {summarize(high).table} with the key {_generated_key(high)} before {low.actor} "
                    f"committed the lower key {_generated_key(low)}{_at(look, low)}; a reader that goes on after the "
                    "highest key misses it"
                )
                yield look, sentence


def _generated_key(insert: Step) -> str:
    return next((value or "" for row in insert.values[:1] for value in row.values()), "")


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
                    + _at(one, other)
                ),
            )


def _missed(run: Run, write: Step, other: Step) -> Step | None:
    """Return the writer's last look at what the other statement changed, if it came before that could be seen."""
    looks = [step for step in looks_before(run, write) if may_see(step, other)]
    return next((step for step in looks[-1:] if misses(run, step, other)), None)


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


_ANOMALIES: Sequence[tuple[str, Callable[[Run], _Found]]] = (
    ("duplicate insert", _duplicate_insert),
    ("stale check", _stale_choice),
    ("lost update", _lost_update),
    ("stale read under a lock", _stale_lock),
    ("non-repeatable read", _unrepeatable_read),
    ("phantom", _phantom),
    ("read skew", _read_skew),
    ("write skew", _write_skew),
    ("stale check", _stale_check),
    ("stale check", _vain_write),
    ("read skew", lambda run: _read_skew(run, of_one_actor)),
    ("out-of-order commit", _out_of_order),
)
"""The finders of anomalies; the more specific anomalies come first, and those that a text tells least surely last."""
_LOCK_FIRST = "lock the row before reading it (select_for_update() in atomic())"
_ONE_SNAPSHOT = "read it all in one statement, or at REPEATABLE READ"
_REMEDIES = {
    "duplicate insert": "add a unique constraint, or lock a row that both actors share before looking",
    "lost update": f"{_LOCK_FIRST}, or compute in the UPDATE (F())",
    "stale read under a lock": "use the values that the locking SELECT returns, and check them again",
    "non-repeatable read": f"{_LOCK_FIRST}, or {_ONE_SNAPSHOT}",
    "phantom": _ONE_SNAPSHOT,
    "read skew": _ONE_SNAPSHOT,
    "write skew": "lock what both actors read, or a row that they share, before reading; or use SERIALIZABLE and retry",
    "stale check": f"{_LOCK_FIRST}, or repeat the condition in the UPDATE and look at the number of rows",
    "out-of-order commit": "lock a row that all writers share before the INSERT, so that they commit one after another",
    "deadlock": "lock rows in one order everywhere, for example by primary key",
    "constraint violation": "handle the IntegrityError, for example by get_or_create()",
}


def _at(*steps: Step) -> str:
    return f" (steps {' and '.join(str(step.begun + 1) for step in steps)})"


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
