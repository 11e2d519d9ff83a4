"""The anomalies that a run may show, each found by what its steps read and wrote.

The names are those of H. Berenson et al., "A Critique of ANSI SQL Isolation Levels", SIGMOD 1995. There is no sentence
for a dirty read: PostgreSQL does not show uncommitted changes to other transactions at any isolation level (PostgreSQL
documentation, section 13.2), so that no run can contain one.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from textwrap import shorten

from django_lockstep.lab.explorer.effects.statement_text import StatementText
from django_lockstep.lab.explorer.render.summaries import is_time, relevant_columns, summarize
from django_lockstep.lab.explorer.render.visibility import (
    changes_between,
    differing,
    looks_at,
    looks_before,
    may_answer_wrong,
    may_see,
    misses,
    overtaken,
    pairs,
    read_twice,
    reads,
    same_transaction,
    search_of,
    visible_from,
    writes,
)
from django_lockstep.lab.explorer.results import Run, Step
from django_lockstep.lab.wording import Sentence, listed
from django_lockstep.lab.wording import gettext as _

_Found = Iterator[tuple[Step, str]]
_CONSTANTS = {"NULL", "True", "False"}
"""Values that nothing is computed to, or from."""
_MOST_SHOWN = 100
"""Characters of the values of a row that a sentence shows."""


def _lost_update(run: Run) -> _Found:
    """Find a write of a column that another actor has changed since the writer read it (P4)."""
    for source, between, write in overtaken(run, writes(run, "UPDATE"), lambda *s: bool(_values(s[1], _row(*s)))):
        row, sets = _row(source, write), summarize(between).sets
        mine, theirs = _values(write, row), _values(between, row)
        changed = [name for name in mine if name in sets and theirs.get(name) != row[name]]
        both = [name for name in changed if not _is_switch(row[name], mine[name], theirs.get(name))]
        different = [name for name in both if mine[name] != theirs.get(name)]
        # Times differ by when the code ran. Columns that are wrong at the end come first, then those set differently.
        shown = [name for name in both if name not in different or not is_time(mine[name])]
        for name in sorted(shown, key=lambda name: (not _is_wrong(run, name), name not in different)):
            change = _("to {value}", value=_value(theirs[name])) if name in theirs else f"({name} = {sets[name]})"
            basis = _("computed from {value}", value=_value(row[name]))
            if mine[name] == row[name]:
                basis = _("as it had read it")
            elif not {mine[name], row[name]}.isdisjoint(_CONSTANTS):
                basis = _("in place of {value}", value=_value(row[name]))
            sentence = _(
                "{actor} wrote {column} {value} {basis}, which {other} had changed {changed} in between{steps}",
                actor=write.actor,
                column=name,
                value=_value(mine[name]),
                basis=basis,
                other=between.actor,
                changed=change,
                steps=_at(source, write),
            )
            yield write, sentence


def _is_switch(before: str, mine: str, theirs: str | None) -> bool:
    """Whether both set the column alike, or to times, from or to a value that nothing is computed from or to."""
    are_alike = mine == theirs or (is_time(mine) and is_time(theirs))
    return are_alike and not {before, mine}.isdisjoint(_CONSTANTS)


def _is_wrong(run: Run, column: str) -> bool:
    return any(re.search(rf"[ ,]{re.escape(column)} [^,]* instead of ", difference) for difference in run.differences)


def _values(write: Step, row: Mapping[str, str]) -> dict[str, str]:
    """Return the values that the write gives to columns of this row, computed outside of the server."""
    summary = summarize(write)
    values = {name: value for name, value in summary.sets.items() if name in summary.given and name in row}
    # bulk_update() sends a CASE with a value for each key.
    keys = {row.get(column) for column in summary.keys}
    assigned = summary.assignments.items() if write.arguments else ()
    branches = [(name, case) for name, value in assigned if name in row for case in value.cases]
    return values | {name: write.arguments[new] for name, (key, new) in branches if write.arguments[key] in keys}


def _stale_choice(run: Run) -> _Found:
    """Find a write of a row by its key although the condition by which the row was chosen is no longer true."""
    for source, between, write in overtaken(run, writes(run, "UPDATE", "DELETE"), lambda *steps: bool(_row(*steps))):
        chosen, sets = _conditions(source, write), summarize(between).sets
        for name in sorted((chosen.keys() & sets) - summarize(write).keys.keys()):
            if sets[name] not in chosen[name]:
                sentence = _(
                    "{actor} chose {rows} by {column} = {values}, and {other} had changed {column} when {actor} wrote "
                    "it{steps}",
                    actor=write.actor,
                    rows=rows_of(write),
                    column=name,
                    values="|".join(map(_value, sorted(chosen[name]))),
                    other=between.actor,
                    steps=_at(source, write),
                )
                yield write, sentence


def _conditions(source: Step, step: Step) -> dict[str, set[str]]:
    """Return the values with which a read compares columns of the step's table, which it may have joined."""
    return {
        condition.column: {source.arguments[number] for number in condition.value.params} or {condition.value.literal}
        for condition in summarize(source).equalities
        if condition.table == summarize(step).table and (source.arguments or not condition.value.params)
    }


def _stale_lock(run: Run) -> _Found:
    """Find a write of a row that was read before it was locked, and changed in between."""
    for source, between, lock in overtaken(run, [step for step in reads(run) if summarize(step).locking]):
        # Where the row was chosen by a condition, that is what is known of it.
        chosen = {name: "|".join(sorted(values)) for name, values in _conditions(source, lock).items()}
        before, locked = _row(source, lock) | chosen, _row(lock, lock)
        later = [step for step in writes(run, "UPDATE") if step.actor == lock.actor and step.begun > lock.ended]
        for write in [step for step in later if summarize(step).same_row(summarize(between))][:1]:
            sets = summarize(write).sets
            for name in [name for name in sets if name in summarize(between).sets and name in before.keys() & locked]:
                if before[name] != locked[name]:
                    sentence = _(
                        "{actor} read {column} {value} before it locked the row{steps}; {other} had changed it in "
                        "between, and {actor} wrote {column} = {new}",
                        actor=write.actor,
                        column=name,
                        value=_value(before[name]),
                        steps=_at(source, lock),
                        other=between.actor,
                        new=sets[name],
                    )
                    yield write, sentence


def _vain_write(run: Run) -> _Found:
    """Find a write that matched no row any more, after which its actor went on as if it had."""
    vain = [step for step in run.steps if step.rows == 0 and summarize(step).verb in {"UPDATE", "DELETE"}]
    written, wrong_tables = {step.begun for step in writes(run)}, differing(run)
    for source, between, write in overtaken(run, vain):
        later = [step for step in run.steps if step.actor == write.actor and step.begun > write.ended]
        # An actor that looks for the row again, or rolls back, has noticed.
        work = [step for step in later if step.begun in written or _is_about(step, summarize(write).table)]
        wrong_writes = [step for step in work if step.begun in written and summarize(step).table in wrong_tables]
        is_answer, goes_on = may_answer_wrong(run, write.actor), work and work[0].begun in written
        if goes_on and (wrong_writes or not is_answer):
            wrote = summarize((wrong_writes or work)[0])
            then = _("{actor} went on with {next} all the same", actor=write.actor, next=f"{wrote.verb} {wrote.table}")
        elif is_answer and (goes_on or not any(it.begun in written for it in work)):
            then = _("{actor} answered as if it had", actor=write.actor)
        else:
            continue
        sentence = _(
            "{actor} read {rows}, and {other} had {changed} it when {actor}'s {verb} found no row{steps}; {then}",
            actor=write.actor,
            rows=rows_of(source),
            other=between.actor,
            changed=_("deleted") if summarize(between).verb == "DELETE" else _("changed"),
            verb=summarize(write).verb,
            steps=_at(source, write),
            then=then,
        )
        yield write, sentence


def _is_about(step: Step, table: str) -> bool:
    return step.sql.startswith("ROLLBACK") or table in summarize(step).tables


def _stale_check(run: Run) -> _Found:
    """Find a write of a column, not by what it held, which another actor has changed since the writer looked at it."""
    updates = writes(run, "UPDATE")
    for source, between, write in overtaken(
        run, updates, lambda *steps: bool(_row(*steps).keys() & summarize(steps[1]).sets)
    ):
        row, summary, theirs = _row(source, write), summarize(write), summarize(between).sets
        both = summary.sets.keys() & theirs.keys() & row.keys()
        for name in sorted(name for name in both if theirs[name] != row[name]):
            if name in summary.plain and not _is_switch(row[name], summary.sets[name], theirs[name]):
                continue
            # A WHERE that names the column checks it again, on the row as it is.
            if not re.search(rf"\b{re.escape(name)}\b", summary.where):
                sentence = _(
                    "{actor} read {column} {value}, and {other} had changed it when {actor} wrote {column} = {new}"
                    "{steps}",
                    actor=write.actor,
                    column=name,
                    value=_value(row[name]),
                    other=between.actor,
                    new=summary.sets[name],
                    steps=_at(source, write),
                )
                yield write, sentence


def _row(source: Step, step: Step) -> dict[str, str]:
    """Return the row that was read and that the step is about, with NULL as text."""
    keys = summarize(step).keys
    rows = (row for row in source.values if all(row[name] in keys[name] for name in keys.keys() & row))
    return {name: "NULL" if value is None else value for name, value in next(rows, {}).items()}


def _unrepeatable_read(run: Run) -> _Found:
    """Find a row that a transaction read twice, with a change by another actor in between (P2)."""
    for first, second, between in read_twice(run):
        if first.rows != second.rows or summarize(between).verb != "UPDATE":
            continue
        for old, new in zip(first.values, second.values, strict=False):
            before, after = relevant_columns(old, first, run), relevant_columns(new, second, run)
            for name in (name for name in before if before[name] != after.get(name)):
                sentence = _(
                    "{actor} read {column} {value} at step {first} and {other_value} at step {second} of one "
                    "transaction, because {other} had changed it in between",
                    actor=second.actor,
                    column=name,
                    value=_value(before[name]),
                    first=first.begun + 1,
                    other_value=_value(after.get(name)),
                    second=second.begun + 1,
                    other=between.actor,
                )
                yield second, sentence


def _phantom(run: Run) -> _Found:
    """Find a search that a transaction made twice, with other rows the second time (P3)."""
    for first, second, between in read_twice(run):
        verb = {"INSERT": _("inserted"), "DELETE": _("deleted")}.get(summarize(between).verb, _("changed"))
        results = [" ".join(map(str, *s.values[0].items())) if _single(s) else s.rows for s in (first, second)]
        sentence = _(
            "{actor} looked for {rows} twice in one transaction and found {before} at step {first} and {after} at step "
            "{second}, because {other} had {changed} a row in between",
            actor=second.actor,
            rows=f"{summarize(second).table} {summarize(second).where}".rstrip(),
            before=results[0],
            first=first.begun + 1,
            after=results[1],
            second=second.begun + 1,
            other=between.actor,
            changed=verb,
        )
        yield second, sentence


def _single(step: Step) -> bool:
    return step.rows == 1 and len(step.values[0]) == 1 if step.values else False


def _duplicate_insert(run: Run) -> _Found:
    """Find two actors that searched for the same row, found none, and both inserted it."""
    inserts = writes(run, "INSERT")
    # The last ones first; an UPDATE that unsets the current row looks for it, too, and may find an older one.
    searches = {insert.begun: looks_before(run, insert, summarize(insert).table)[::-1] for insert in inserts}
    for earlier, later in pairs(inserts):
        for search in searches[later.begun]:
            keys = {name: value for name, (value, *more) in _sorted_keys(summarize(search)) if not more}
            if not keys or any(not summarize(insert).sets.items() >= keys.items() for insert in (earlier, later)):
                continue
            alike = (look for look in searches[earlier.begun] if summarize(look).keys == summarize(search).keys)
            if (first := next(alike, None)) is None:
                continue
            blind = all(_found_none(step) for step in (first, search) if summarize(step).verb == "SELECT")
            if blind and misses(run, search, earlier):
                row = ", ".join(f"{name}={_value(value)}" for name, value in keys.items())
                actor, other = sorted([earlier.actor, later.actor])
                sentence = _(
                    "{actor} and {other} both looked for a row of {table} with {row}, {none}, and inserted it{steps}",
                    actor=actor,
                    other=other,
                    table=summarize(earlier).table,
                    row=row,
                    none=_("found none")
                    if all(map(_found_none, (first, search)))
                    else _("did not see the other one's"),
                    steps=_at(search, later),
                )
                yield later, sentence


def _sorted_keys(summary: StatementText) -> list[tuple[str, list[str]]]:
    return [(name, sorted(values)) for name, values in summary.keys.items()]


def _found_none(step: Step) -> bool:
    # What count(), exists() and an aggregate return without rows.
    return step.rows == 0 or (_single(step) and set(step.values[0].values()) <= {"0", "False", None})


def _read_skew(run: Run, *, autocommit: bool = False) -> _Found:
    """Find an actor that read one row before and another row after a change of both (A5A)."""
    # The same search again is another attempt. Of hundreds of reads few are of what another actor changes later.
    last = {search_of(step): step for step in reads(run)}.values()
    stale = {
        step.begun for step in last if any(may_see(step, it) for it in changes_between(run, step, len(run.schedule)))
    }
    for first, second in pairs(reads(run), same_actor=True):
        if first.begun not in stale or autocommit is same_transaction(first, second):
            continue
        if summarize(first).may_touch(summarize(second)):
            continue  # one row that is read twice would be a non-repeatable read
        meanwhile = list(changes_between(run, first, second.ended))
        for before in (step for step in meanwhile if may_see(first, step)):
            if any(may_see(second, after) and before.actor == after.actor for after in meanwhile):
                sentence = _(
                    "{actor} read {first} before, and {second} after {other} changed both{steps}",
                    actor=first.actor,
                    first=rows_of(first),
                    second=rows_of(second),
                    other=before.actor,
                    steps=_at(first, second),
                )
                yield second, sentence


def _out_of_order(run: Run) -> _Found:
    """Find a reader of rows in the order of their keys that saw a higher key before a lower key was committed."""
    returned = {step.begun: [*step.values[0].values()] for step in writes(run, "INSERT") if step.values}
    keys = {begun: int(value) for begun, (value, *_) in returned.items() if value and value.isdecimal()}
    inserts = sorted((step for step in run.steps if step.begun in keys), key=lambda step: keys[step.begun])
    for low, high in pairs(inserts):
        for look in [step for step in reads(run) if re.search("ORDER BY| > ", step.sql)]:
            committed = look.actor == high.actor or visible_from(run, high) <= look.begun
            if committed and look.begun > high.ended and may_see(look, high) and misses(run, look, low):
                sentence = _(
                    "{actor} read {table} with the key {high} before {other} committed the lower key {low}{steps}; a "
                    "reader that goes on after the highest key misses it",
                    actor=look.actor,
                    table=summarize(high).table,
                    high=str(keys[high.begun]),
                    other=low.actor,
                    low=str(keys[low.begun]),
                    steps=_at(look, low),
                )
                yield look, sentence


def _write_skew(run: Run) -> _Found:
    """Find two actors that each read what the other one then wrote, in different rows (A5B)."""
    looks = {write.begun: {look.begun for look in looks_before(run, write)} for write in writes(run)}
    for first, second in pairs(writes(run)):
        # Both wrote one row: that would be a lost update.
        if summarize(first).same_row(summarize(second)):
            continue
        missed = [
            look
            for write, change in ((first, second), (second, first))
            for look in [look for look in looks_at(run, change) if look.begun in looks[write.begun]][-1:]
            if misses(run, look, change)
        ]
        if len(missed) == 2:
            sentence = _(
                "{actor} and {other} each read {tables} before the other one's change was committed, and based their "
                "writes on that: {first} and {second}{steps}",
                actor=first.actor,
                other=second.actor,
                tables=listed(dict.fromkeys(summarize(look).table for look in missed)),
                first=_change(first),
                second=_change(second),
                steps=_at(first, second),
            )
            yield second, sentence


def _atomicity_violation(run: Run) -> _Found:
    """Find writes of one actor in two transactions, between which another one wrote, or read, both rows.

    The name is that of S. Lu et al., "Learning from Mistakes", ASPLOS 2008.
    """
    for first, second in pairs(writes(run), same_actor=True):
        if same_transaction(first, second) or summarize(first).same_row(summarize(second)):
            continue
        rows = {"actor": first.actor, "first": rows_of(first), "second": rows_of(second), "steps": _at(first, second)}
        meanwhile = list(changes_between(run, first, second.ended))
        for theirs in (step for step in meanwhile if summarize(step).same_row(summarize(first))):
            if any(step.actor == theirs.actor and may_see(second, step) for step in meanwhile if step != theirs):
                text = _(
                    "{actor} wrote {first} and {second} in two transactions, and {other} wrote both in between{steps}",
                    other=theirs.actor,
                    **rows,
                )
                yield second, text
        before, after_first = (
            [look for look in looks_at(run, change) if summarize(look).verb == "SELECT"] for change in (second, first)
        )
        for after in (look for look in after_first if visible_from(run, first) <= look.begun):
            if any(look.actor == after.actor and misses(run, look, second) for look in before):
                text = _(
                    "{actor} wrote {first} and {second} in two transactions, and {other} read both in between{steps}",
                    other=after.actor,
                    **rows,
                )
                yield after, text


def _at(first: Step, second: Step) -> Sentence:
    return _(" (steps {first} and {second})", first=first.begun + 1, second=second.begun + 1)


def rows_of(step: Step) -> str:
    summary = summarize(step)
    keys = " ".join(f"{name}={'|'.join(values)}" for name, values in _sorted_keys(summary))
    return f"{summary.table} {keys or summary.where}".rstrip()


def _change(step: Step) -> str:
    summary = summarize(step)
    sets = ", ".join(f"{name} = {value}" for name, value in summary.sets.items() if not is_time(value))
    shown = f" ({shorten(sets, _MOST_SHOWN, placeholder=' ...')})" if sets else ""
    return f"{step.actor} {summary.verb} {rows_of(step)}{shown}"


def _value(value: str | None) -> str:
    return "NULL" if value is None else value or "''"


ANOMALIES: Sequence[tuple[str, Callable[[Run], _Found]]] = (
    (_("duplicate insert"), _duplicate_insert),
    (_("stale check"), _stale_choice),
    (_("lost update"), _lost_update),
    (_("stale read under a lock"), _stale_lock),
    (_("non-repeatable read"), _unrepeatable_read),
    (_("phantom"), _phantom),
    (_("read skew"), _read_skew),
    (_("stale check"), _vain_write),
    (_("write skew"), _write_skew),
    (_("stale check"), _stale_check),
    (_("read skew"), functools.partial(_read_skew, autocommit=True)),
    (_("atomicity violation"), _atomicity_violation),
    (_("out-of-order commit"), _out_of_order),
)
"""The finders of anomalies; the more specific anomalies come first, and those that a text tells least surely last."""
UNSURE = {_("atomicity violation"), _("out-of-order commit")}
"""Those that another one in the same run explains, if there is one."""
