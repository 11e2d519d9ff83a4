"""Candidates in which a row is written that was read before, or inserted after a look: C1 to C3 of a lost update.

A read that holds its row locked, and a snapshot that refuses to overwrite what is newer, are none. Neither are sessions
and times of the change, nor a write that is conditional on what it changes, unless others follow whatever it changed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from django_lockstep.lab.explorer.effects.statement_text import Value
from django_lockstep.lab.finder.derive.history import History, Hit, Row, UnitStep
from django_lockstep.lab.finder.record.recording import PASSED_ROW, RowRead, Unit
from django_lockstep.lab.wording import gettext_noop

_NUMBERS = frozenset({"smallint", "integer", "bigint", "numeric", "real", "double precision"})
_DATES = frozenset({"date", "timestamp with time zone", "timestamp without time zone"})
RANK_NUMBER, RANK_IN_PLACE, RANK_DATE, RANK_STATE, RANK_LATE, RANK_REREAD, RANK_EDIT = 10, 15, 25, 30, 35, 70, 90
RANK_DELETED, RANK_UNREAD, RANK_WHOLE, RANK_AGAIN, RANK_DELETED_TWICE = 30, 65, 33, 29, 95

_COMPUTED = gettext_noop(
    "{subject} read{read} without a lock, and written{write} with another value: what another transaction commits in "
    "between is lost."
)
_IN_PLACE = gettext_noop(
    "{subject} read{read} without a lock, and changed in place{write} with no condition on it: two transactions can "
    "pass the same check."
)
_STATE = gettext_noop(
    "{subject} read{read} without a lock, and set{write}: two transactions can both see the old value and go on."
)
_EDIT = gettext_noop("{subject} written{write} from the input, over what was read{read}: the last writer wins.")
_DELETED = gettext_noop(
    "A row of {name} is read{read} without a lock, and deleted{write}: two transactions can both use it."
)
_UNREAD = gettext_noop(
    "{subject} read{read} without a lock, and changed{write} on a condition: two transactions can both go on, unless "
    "the count of changed rows is looked at."
)
_LATE = gettext_noop(
    "{subject} read{read} before its row is locked, and written{write}: what was read may no longer be true."
)


def row_races(history: History) -> Iterator[Hit]:
    """Yield the candidates of one unit."""
    last = max((step.place for step in history.writes("INSERT", "UPDATE", "DELETE")), default=0)
    for write in history.writes("UPDATE", "DELETE"):
        column = min(_conditions(history, write), default="")
        if write.template.verb == "DELETE":
            read = _read_of(history, write)
            # What Django reads to delete a row is read in the same line. Looks at several rows are for `write_skews`.
            if read and read[0].statement.site != write.statement.site and not read[0].sees_many:
                rank = RANK_DELETED_TWICE if history.unit.name.startswith("DELETE ") else RANK_DELETED
                yield history.hit("check-then-act", _DELETED, rank=rank, read=read[0], write=write)
        elif not column:
            # No other transaction can change a row that this one has made.
            rows = history.changed_rows(write) - history.inserted_rows
            yield from _worst_hits(history, write, rows)
        # It matters whether the count of changed rows is looked at, if more is written whatever it is.
        elif write.place < last and (read := _read_of(history, write, column)):
            yield history.hit("check-then-act", _UNREAD, rank=RANK_UNREAD, column=column, read=read[0], write=write)


def _read_of(history: History, write: UnitStep, column: str = "") -> tuple[UnitStep, RowRead, Row] | None:
    """Return where a row that it writes was read last, if nothing protects that."""
    for row in sorted(history.changed_rows(write) - history.inserted_rows):
        for read, before in _reads(history, write.place, write.statement.alias, row, column):
            groups = ({row}, *history.row_references(before))
            if not history.has_snapshot(read, write) and not history.is_guarded(read, write, *groups):
                return read, before, row
            break
    return None


def _worst_hits(history: History, write: UnitStep, rows: frozenset[Row]) -> list[Hit]:
    """Return a candidate for each column that one of the rows shows it for."""
    hits: list[Hit] = []
    for column, value in write.template.assignments.items():
        shown = (_hit(history, write, row, column, write.value_for(row[1], value)) for row in sorted(rows))
        hits += [hit for hit in shown if hit is not None][:1]
    # Of the worst kind: a write that overwrites a sum may also raise a counter.
    worst = min(hits, key=lambda hit: hit.rank).kind if hits else ""
    return [hit for hit in hits if hit.kind == worst]


def _conditions(history: History, write: UnitStep) -> set[str]:
    """Return the columns that it both sets and tests: a version, a state, an amount that has to suffice."""
    table = write.template.table
    tested = {column for name, column in write.template.tested if name == table}
    return tested & set(write.template.assignments) - set(history.table(table).key)


def _hit(history: History, write: UnitStep, row: Row, column: str, value: Value) -> Hit | None:
    reads = _reads(history, write.place, write.statement.alias, row, column)
    if (last_read := next(reads, None)) is None:
        return None
    read, before = last_read
    # Keys do not change, and of the times of a change the last one is right, unless rows are chosen by it.
    types = write.statement.types
    is_time = "now" in [types[number] for number in value.params[:1] if number < len(types)]
    if column in history.table(row[0]).key or (is_time and (row[0], column) not in read.template.tested):
        return None
    if history.has_snapshot(read, write) or _was_written(history, read, write, row, column):
        return None
    in_place = column in value.columns
    after = write.values(value)
    # save() writes all columns back: those with the value that was read are not what it is about.
    if not in_place and (len(after) != 1 or after[0] == before.values[column]):
        return None
    if history.is_guarded(read, write, {row}, *history.row_references(before)):
        return _reread(history, write, row, column, read)
    kind, rank, sentence = "check-then-act", RANK_STATE, _STATE
    if not is_time:
        kind, rank, sentence = _consequence(history, write, row, column, after, in_place=in_place)
    if _is_locked_between(history, read, write, row):
        kind, rank, sentence = "late-lock", max(rank, RANK_LATE), _LATE
    return history.hit(kind, sentence, rank=rank, column=column, read=read, write=write)


def _reads(history: History, end: int, alias: str, row: Row, column: str) -> Iterator[tuple[UnitStep, RowRead]]:
    """Yield the statements before a place that returned the row's column, or any, the last first."""
    for step in reversed(history.steps[:end]):
        # What save() overwrites is its caller's affair, here the test's.
        is_passed = step.statement.sql == PASSED_ROW and history.unit.name.endswith(".save")
        if step.statement.alias != alias or is_passed:
            continue
        for row_read in step.statement.read:
            if (
                row_read.table == row[0]
                and (not column or column in row_read.values)
                and history.key_of(step, row_read) == row[1]
            ):
                yield step, row_read
                break


def _was_written(history: History, read: UnitStep, write: UnitStep, row: Row, column: str) -> bool:
    """Whether the unit itself wrote it in between: that write is the candidate."""
    between = history.steps[read.place + 1 : write.place]
    return any(
        column in step.template.assignments and row in history.changed_rows(step)
        for step in between
        if step.template.verb == "UPDATE"
    )


def _is_locked_between(history: History, read: UnitStep, write: UnitStep, row: Row) -> bool:
    between = history.steps[read.place + 1 : write.place]
    same = write.statement.transaction
    # An earlier write locks too, but was not meant to.
    selects = (step for step in between if step.template.is_select)
    return same is not None and any(
        step.statement.transaction == same and row in history.locked_rows(step) for step in selects
    )


def _reread(history: History, write: UnitStep, row: Row, column: str, locked: UnitStep) -> Hit | None:
    """Return a late lock: the row was read again under it, but something may still rest on the first read."""
    if row not in history.locked_rows(locked):
        return None
    earlier = next(_reads(history, locked.place, write.statement.alias, row, column), None)
    if earlier is None or history.is_guarded(earlier[0], write, {row}, *history.row_references(earlier[1])):
        return None
    return history.hit("late-lock", _LATE, rank=RANK_REREAD, column=column, read=earlier[0], write=write)


def _consequence(
    history: History, write: UnitStep, row: Row, column: str, after: tuple[str, ...], *, in_place: bool
) -> tuple[str, int, str]:
    """Return kind, rank and sentence by what is lost."""
    if in_place:
        return "check-then-act", RANK_IN_PLACE, _IN_PLACE
    table = history.table(row[0])
    # What a user has typed was not computed from what was read.
    if after[0] in history.unit.inputs:
        return "read-modify-write", RANK_EDIT, _EDIT
    if table.types.get(column, "").partition("(")[0] in _DATES:
        return "read-modify-write", RANK_DATE, _COMPUTED
    # Numbers that are keys add up to nothing.
    is_reference = (column,) in {key.columns for key in table.foreign_keys}
    if table.types.get(column, "") in _NUMBERS and not is_reference and after[0] != "NULL":
        return "read-modify-write", RANK_NUMBER, _COMPUTED
    return "check-then-act", RANK_STATE, _STATE


# Candidates of save(), which writes all columns: those that were not changed as they were read, over what another unit
# has written in between; and if the row was deleted, by an INSERT.

_WHOLE = "{subject} read{read} and written back{write} as before: what {partner} writes in between is lost."
_AGAIN = "A row of {name} is read{read} and saved as a whole{write}: if {partner} deletes it in between, it comes back."

_SAVES = {True: ("whole-row-write", RANK_WHOLE, _WHOLE), False: ("deleted-row-write", RANK_AGAIN, _AGAIN)}
"""By whether other columns are written back, or the row comes back: kind, rank and sentence."""


def whole_row_races(histories: Sequence[History]) -> Iterator[Hit]:
    """Yield the candidates of units with others that change, or delete, what they save."""
    # One of each unit: in a large suite hundreds of tests have the same request sent.
    writers: dict[tuple[str, str], dict[str, Unit]] = defaultdict(dict)
    saves = [
        (history, write, _unchanged(history, write)) for history in histories for write in history.writes("UPDATE")
    ]
    changes = [
        *((history.unit, write, write.template.assignments.keys() - unchanged) for history, write, unchanged in saves),
        *((history.unit, write, {""}) for history in histories for write in history.writes("DELETE")),
    ]
    for unit, write, columns in changes:
        for column in columns:
            writers[write.template.table, column].setdefault(unit.name, unit)
    others: dict[tuple[str, ...], tuple[Unit, ...]] = {}
    for history, write, unchanged in saves:
        if _conditions(history, write) or (seen := _read_of(history, write)) is None:
            continue
        table = history.table(write.template.table)
        is_whole = table.types.keys() <= {*write.template.assignments, *table.key}
        for column in [*sorted(unchanged), *([""] if is_whole else [])]:
            key = table.name, column
            if (own := (*key, history.unit.name)) not in others:
                others[own] = tuple(unit for unit in writers[key].values() if unit.name != history.unit.name)
            if partners := others[own]:
                kind, rank, text = _SAVES[bool(column)]
                yield history.hit(kind, text, rank=rank, column=column, read=seen[0], write=write, partners=partners)


def _unchanged(history: History, write: UnitStep) -> frozenset[str]:
    """Return the columns that it sets to what was read of its row."""
    for row in sorted(history.changed_rows(write)):
        for _, before in _reads(history, write.place, write.statement.alias, row, ""):
            values = {name: write.value_for(row[1], value) for name, value in write.template.assignments.items()}
            return frozenset(name for name in values if write.values(values[name]) == (before.values.get(name),))
    return frozenset()


# Candidates in which a row is inserted after a look that such an insert would have changed: check-then-insert. A lock
# on a row that the look refers to, an upsert and SERIALIZABLE keep two of them apart; a unique index over what was
# looked for refuses the second one.

RANK_DOUBLED, RANK_COUNTED, RANK_LISTED, RANK_REFUSED = 20, 22, 45, 60
_NONE_FOUND = gettext_noop(
    "No row of {name} is found{read}, then one is inserted{write}: no unique index and no lock keeps two transactions "
    "from inserting one each."
)
_COUNTED = gettext_noop(
    "Rows of {name} are counted or ordered{read}, then one is inserted{write}: two transactions can count the same "
    "rows, and together exceed what was allowed."
)
_REFUSED = gettext_noop(
    "Rows of {name} are looked for{read}, then one is inserted{write}: of two transactions a unique index refuses one, "
    "which is a server error if that is not handled."
)
_LISTED = gettext_noop(
    "Rows of {name} are read{read}, then another is inserted{write}: what they add up to may no longer be true."
)


def insert_races(history: History) -> Iterator[Hit]:
    """Yield the candidates of one unit; of one insert the worst."""
    for write in history.writes("INSERT"):
        # ON CONFLICT says itself what is to happen with a row that is there.
        if write.template.upsert or not write.template.table:
            continue
        hits = [hit for read in history.looks_before(write) if (hit := _insert_hit(history, read, write)) is not None]
        if hits:
            yield min(hits, key=lambda hit: hit.rank)


def _insert_hit(history: History, read: UnitStep, write: UnitStep) -> Hit | None:
    table = write.template.table
    looked = read.template
    if table not in looked.tables:
        return None
    rank, sentence = _insert_consequence(read)
    if not rank or not _would_match(history, read, write) or history.has_snapshot(read, write, "serializable"):
        return None
    # A lock on a parent of the look: a parent of the inserted row alone may be another one next time.
    if history.is_guarded(read, write, {(table, "")}, *history.parents(read, table)):
        return None
    if _is_refused(history, read, write):
        rank, sentence = RANK_REFUSED, _REFUSED
    return history.hit("check-then-insert", sentence, rank=rank, read=read, write=write)


def _insert_consequence(read: UnitStep) -> tuple[int, str]:
    looked, rows = read.template, read.statement.rows
    # A count, the highest number, the last position: the new row is computed from it.
    if looked.looks in {"aggregate", "first"} and (looked.looks == "aggregate" or rows):
        return RANK_COUNTED, _COUNTED
    if rows == 0:
        return RANK_DOUBLED, _NONE_FOUND
    # That something exists is no reason to insert it.
    return (0, "") if looked.looks == "exists" or not looked.tested else (RANK_LISTED, _LISTED)


def _would_match(history: History, read: UnitStep, write: UnitStep) -> bool:
    """Whether the look would have seen the inserted row."""
    table = write.template.table
    conditions = read.equals(table)
    assignments = write.template.assignments
    matches = [
        bool(conditions[name] & set(write.values(assignments[name]))) for name in conditions if name in assignments
    ]
    # With another value than was asked for, the new row would not have been found.
    if not all(matches):
        return False
    # A row, or a parent, that was made here: no other session knows it.
    rows = {(table, key) for key in history.named_keys(read, table)} | history.references(read, table)
    if rows & history.inserted_rows:
        return False
    return bool(matches) or not read.template.tested or read.template.looks != "rows"


def _is_refused(history: History, read: UnitStep, write: UnitStep) -> bool:
    """Whether a unique index covers what was looked for, so that the second of two rows is an error."""
    table = write.template.table
    # Of a key that the database gives no two are equal in any case.
    compared = {column for name, column in read.template.tested | read.template.summed if name == table}
    compared &= set(write.template.assignments)
    return any(compared >= {*index.columns, *index.predicate} for index in history.table(table).unique if index.columns)
