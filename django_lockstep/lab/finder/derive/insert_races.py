"""Candidates in which a row is inserted after a look that such an insert would have changed: check-then-insert.

A unique index over what was looked for, a lock on a row that the look refers to, an upsert and SERIALIZABLE keep two of
them apart.
"""

from __future__ import annotations

from collections.abc import Iterator

from django_lockstep.lab.finder.derive.history import History, Hit, UnitStep

__all__ = ["insert_races"]

RANK_DOUBLED, RANK_COUNTED, RANK_LISTED = 20, 22, 45
_NONE_FOUND = (
    "No row of {name} is found{read}, then one is inserted{write}: no unique index and no lock keeps two transactions "
    "from inserting one each."
)
_COUNTED = (
    "Rows of {name} are counted or ordered{read}, then one is inserted{write}: two transactions can count the same "
    "rows, and together exceed what was allowed."
)
_LISTED = "Rows of {name} are read{read}, then another is inserted{write}: what they add up to may no longer be true."


def insert_races(history: History) -> Iterator[Hit]:
    """Yield the candidates of one unit; of one insert the worst."""
    for write in history.writes("INSERT"):
        # ON CONFLICT says itself what is to happen with a row that is there.
        if write.template.upsert or not write.template.table:
            continue
        hits = [hit for read in history.steps[: write.place] if (hit := _hit(history, read, write)) is not None]
        if hits:
            yield min(hits, key=lambda hit: hit.rank)


def _hit(history: History, read: UnitStep, write: UnitStep) -> Hit | None:
    table = write.template.table
    looked = read.template
    if not looked.is_select or table not in looked.tables or read.statement.alias != write.statement.alias:
        return None
    rank, sentence = _consequence(read)
    if not rank or not _would_match(history, read, write) or _is_kept_apart(history, read, write):
        return None
    return Hit(
        kind="check-then-insert", table=table, unit=history.unit, read=read, write=write, rank=rank, sentence=sentence
    )


def _consequence(read: UnitStep) -> tuple[int, str]:
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
    asked = read.equals(table)
    given = write.template.assignments
    known = [bool(asked[name] & set(write.values(given[name]))) for name in asked if name in given]
    # With another value than was asked for, the new row would not have been found.
    if not all(known):
        return False
    # A row, or a parent, that was made here: nobody else knows it.
    rows = {(table, key) for key in history.named_keys(read, table)} | history.references(read, table)
    if rows & history.made:
        return False
    return bool(known) or not read.template.tested or read.template.looks != "rows"


def _is_kept_apart(history: History, read: UnitStep, write: UnitStep) -> bool:
    table = write.template.table
    if history.has_snapshot(read, write, "serializable"):
        return True
    # Of a key that the database gives no two are equal in any case.
    compared = {column for name, column in read.template.tested | read.template.summed if name == table}
    compared &= set(write.template.assignments)
    if any(compared >= {*index.columns, *index.predicate} for index in history.table(table).unique if index.columns):
        return True
    # Inserts of children are kept apart where each locks the parent first.
    references = history.references(read, table) | history.references(write, table)
    return history.is_guarded(read, write, {*references, (table, "")})
