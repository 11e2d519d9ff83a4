"""Understands the SQL that Django writes, and says so where it does not.

A recogniser, no parser: a statement that is not certainly of a known form is unknown, and the search then takes it to
depend on everything.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from accounts.lab.explorer.catalog import Catalog, Table
from accounts.lab.explorer.footprints import Key, Mode
from accounts.lab.explorer.operations import Operation

__all__ = ["Statement", "understand", "understood"]

_NAME = r'(?:"([^"]+)"|([a-z_][a-z0-9_]*))'
_STRING = re.compile(r"'(?:[^']|'')*'")
_LOCAL = re.compile(
    r"\s*(SAVEPOINT|RELEASE SAVEPOINT|SET (LOCAL|TRANSACTION|CONSTRAINTS .* DEFERRED)|BEGIN|CLOSE|SHOW)\b[^;]*$",
    re.IGNORECASE,
)
_ISOLATION = re.compile(
    r"\bISOLATION LEVEL (READ COMMITTED|READ UNCOMMITTED|REPEATABLE READ|SERIALIZABLE)", re.IGNORECASE
)
_LOCKING = re.compile(r"\bFOR (NO KEY UPDATE|KEY SHARE|UPDATE|SHARE)\b", re.IGNORECASE)
_TABLES = re.compile(rf"\b(?:FROM|JOIN|INTO|UPDATE)\s+(?:ONLY\s+)?{_NAME}(?!\s*\.)", re.IGNORECASE)
_QUALIFIED = re.compile(rf"\b(?:FROM|JOIN|INTO|UPDATE)\s+(?:ONLY\s+)?(?:{_NAME}\s*\.|\()", re.IGNORECASE)
_COMMA_JOIN = re.compile(rf"\bFROM\s+{_NAME}(?:\s+(?:AS\s+)?\w+)?\s*,", re.IGNORECASE)
_CALL = re.compile(r"([a-z_][a-z0-9_.]*)\s*\(", re.IGNORECASE)
_HARMLESS = frozenset(
    [
        "abs",
        "all",
        "and",
        "any",
        "as",
        "avg",
        "bool_and",
        "bool_or",
        "by",
        "cast",
        "ceil",
        "ceiling",
        "char_length",
        "coalesce",
        "concat",
        "count",
        "current_setting",
        "date_trunc",
        "distinct",
        "else",
        "exists",
        "extract",
        "floor",
        "from",
        "greatest",
        "hashtextextended",
        "in",
        "into",
        "json_agg",
        "jsonb_agg",
        "least",
        "left",
        "length",
        "lower",
        "lpad",
        "ltrim",
        "max",
        "min",
        "mod",
        "not",
        "now",
        "nullif",
        "numeric",
        "on",
        "or",
        "over",
        "pg_advisory_xact_lock",
        "pg_advisory_xact_lock_shared",
        "pg_backend_pid",
        "pg_try_advisory_xact_lock",
        "replace",
        "returning",
        "right",
        "round",
        "rtrim",
        "select",
        "set",
        "set_config",
        "sign",
        "statement_timestamp",
        "string_agg",
        "substring",
        "sum",
        "then",
        "trim",
        "upper",
        "using",
        "values",
        "varchar",
        "when",
        "where",
    ]
)
"""What may stand before a parenthesis: functions without side effects, and words of SQL."""
_ADVISORY = re.compile(r"\bpg_(?:try_)?advisory_xact_lock(_shared)?\s*\(", re.IGNORECASE)
_MODES = {
    "NO KEY UPDATE": Mode.NO_KEY_UPDATE,
    "KEY SHARE": Mode.KEY_SHARE,
    "UPDATE": Mode.UPDATE,
    "SHARE": Mode.SHARE,
}
ADVISORY = "advisory lock"
"""Stands for a table whose rows are the advisory locks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """What a statement does, as far as its text tells."""

    kind: str
    """SELECT, INSERT, UPDATE, DELETE, COMMIT, ROLLBACK, ROLLBACK TO, LOCAL or UNKNOWN."""
    reads: frozenset[Key] = frozenset()
    locks: frozenset[tuple[Key, Mode]] = frozenset()
    writes: frozenset[Key] = frozenset()
    isolation: str | None = None
    """The isolation level that it chooses for the transaction."""


UNKNOWN = Statement(kind="UNKNOWN")


def understood(operation: Operation, catalog: Catalog) -> Statement:
    """Return what the operation's statement touches, worked out once."""
    if operation.statement is None:
        operation.statement = understand(operation.sql, operation.params, catalog=catalog, many=operation.many)
    return cast("Statement", operation.statement)


def understand(sql: str, params: Any, *, catalog: Catalog, many: bool = False) -> Statement:
    """Return what the statement touches; `UNKNOWN` unless it is certainly understood."""
    text = _STRING.sub("''", sql).strip().rstrip(";")
    word = text.partition(" ")[0].upper()
    if word in {"COMMIT", "END"}:
        return Statement(kind="COMMIT")
    if word == "ROLLBACK":
        return Statement(
            kind="ROLLBACK TO" if re.match(r"ROLLBACK (WORK |TRANSACTION )?TO", text, re.IGNORECASE) else "ROLLBACK"
        )
    if _LOCAL.match(text):
        level = _ISOLATION.search(text)
        return Statement(kind="LOCAL", isolation=level[1].lower() if level else None)
    if word not in {"SELECT", "INSERT", "UPDATE", "DELETE"} or _strange(text):
        return UNKNOWN
    return _plain(word, text, params, catalog=catalog, many=many)


def _strange(text: str) -> bool:
    """Whether it has parts that the rest of this module would misread."""
    calls = {name.lower() for name in _CALL.findall(re.sub(r'"[^"]*"\s*\(', "(", text))}
    return bool(
        ";" in text
        or "--" in text
        or "/*" in text
        or "$$" in text
        or (_QUALIFIED.search(text) and not re.search(r"\b(FROM|JOIN)\s+\(\s*SELECT\b", text, re.IGNORECASE))
        or _COMMA_JOIN.search(text)
        or calls - _HARMLESS
        or _changes_session(text)
    )


def _changes_session(text: str) -> bool:
    """Whether a setting is changed for longer than the transaction."""
    return "set_config" in text.lower() and not re.search(r"set_config\([^()]*,\s*true\s*\)", text, re.IGNORECASE)


def _plain(word: str, text: str, params: Any, *, catalog: Catalog, many: bool) -> Statement:
    names = [quoted or bare.lower() for quoted, bare in _named_tables(word, text)]
    tables = [catalog.get(name) for name in names]
    if any(table is None or table.special for table in tables) or (word != "SELECT" and not tables):
        return UNKNOWN
    known = [table for table in tables if table is not None]
    if word == "SELECT":
        return _select(text, params, known)
    target = known[0]
    if target.triggered:
        return UNKNOWN
    keys = _keys(text, params, target) if len(known) == 1 and not many else {None}
    others = frozenset((table.name, None) for table in known[1:])
    return _WRITES[word](text, target, frozenset((target.name, key) for key in keys), others, catalog)


def _named_tables(word: str, text: str) -> list[tuple[str, str]]:
    # FOR UPDATE OF names a table that FROM has named; ON CONFLICT DO UPDATE SET names none.
    text = re.sub(r"\bDO UPDATE SET\b", "", _LOCKING.sub("", text), flags=re.IGNORECASE)
    return [(quoted, bare) for quoted, bare in _TABLES.findall(text) if bare.upper() != "SELECT"]


def _select(text: str, params: Any, tables: list[Table]) -> Statement:
    advisory = _advisory(text, params)
    reads = frozenset(
        (table.name, key) for table in tables for key in (_keys(text, params, table) if len(tables) == 1 else {None})
    )
    strengths = _LOCKING.findall(text)
    if "INTO" in text.upper().split():
        return UNKNOWN
    mode = max((_MODES[name.upper()] for name in strengths), default=None)
    locks = frozenset((key, mode) for key in reads) if mode is not None else frozenset()
    return Statement(kind="SELECT", reads=reads, locks=locks | advisory)


def _advisory(text: str, params: Any) -> frozenset[tuple[Key, Mode]]:
    """Return the advisory locks as locks of rows of one table; the key is known where it is all parameters."""
    called = _ADVISORY.search(text)
    if called is None:
        return frozenset()
    return frozenset({((ADVISORY, None), Mode.SHARE if called[1] else Mode.UPDATE)})


def _insert(text: str, table: Table, rows: frozenset[Key], others: frozenset[Key], catalog: Catalog) -> Statement:
    whole = (table.name, None)
    locks = {(whole, Mode.INSERT)} | _parents(table)
    reads = set(others)
    if re.search(r"\bON CONFLICT\b", text, re.IGNORECASE):
        locks.add((whole, Mode.UPDATE))
        reads.add(whole)
    return Statement(kind="INSERT", reads=frozenset(reads), locks=frozenset(locks), writes=frozenset({whole}))


def _update(text: str, table: Table, rows: frozenset[Key], others: frozenset[Key], catalog: Catalog) -> Statement:
    columns = _changed_columns(text)
    if columns is None or columns & table.unique:
        locks = {(key, Mode.UPDATE) for key in rows} | {((table.name, None), Mode.INSERT)} | _parents(table)
        locks |= _children(table, catalog)
    else:
        locks = {(key, Mode.NO_KEY_UPDATE) for key in rows} | _parents(table)
    return Statement(kind="UPDATE", reads=rows | others, locks=frozenset(locks), writes=rows)


def _delete(text: str, table: Table, rows: frozenset[Key], others: frozenset[Key], catalog: Catalog) -> Statement:
    locks = {(key, Mode.UPDATE) for key in rows} | _children(table, catalog)
    changed = catalog.changed_with(table.name) - {table.name}
    writes = rows | {(name, None) for name in changed}
    reads = rows | others | {(child, None) for child in table.children}
    return Statement(kind="DELETE", reads=reads, locks=frozenset(locks), writes=writes)


_WRITES = {"INSERT": _insert, "UPDATE": _update, "DELETE": _delete}


def _parents(table: Table) -> set[tuple[Key, Mode]]:
    return {((parent, None), Mode.KEY_SHARE) for parent in table.parents}


def _children(table: Table, catalog: Catalog) -> set[tuple[Key, Mode]]:
    """Return what the checks of a deleted or renamed key lock, and what the server changes along with it."""
    checked = {((child, None), Mode.KEY_SHARE) for child in table.children}
    return checked | {((child, None), Mode.UPDATE) for child in catalog.changed_with(table.name) - {table.name}}


def _changed_columns(text: str) -> set[str] | None:
    """Return the columns that an UPDATE sets; None where that is not plain."""
    body = re.search(r"\bSET\b(.*?)(\bWHERE\b|$)", text, re.IGNORECASE | re.DOTALL)
    if body is None or "(SELECT" in body[1].upper().replace(" ", ""):
        return None
    names = re.findall(rf"(?:^|,)\s*{_NAME}\s*=", re.sub(r"\([^()]*\)", "", body[1]), re.IGNORECASE)
    return {quoted or bare.lower() for quoted, bare in names} or None


def _keys(text: str, params: Any, table: Table) -> set[int | None]:
    """Return the primary keys that the WHERE clause restricts the statement to; {None} where it does not plainly."""
    where = re.search(r"\bWHERE\b(.*)$", text, re.IGNORECASE | re.DOTALL)
    plain = where and not re.search(r"\b(OR|NOT|SELECT|UNION|EXCEPT|INTERSECT|CASE)\b", where[1], re.IGNORECASE)
    if not (where and plain and table.pk) or "(SELECT" in text.upper().replace(" ", ""):
        return {None}
    column = rf'(?:(?:"{table.name}"|{table.name})\.)?(?:"{table.pk}"|\b{table.pk})'
    found = re.search(rf"(?<![\w.\"]){column}\s*(?:=\s*(%s|\d+)(?![\s)]*[-+*/|%])|IN\s*\(([%s\d,\s]*)\))", where[1])
    if found is None:
        return {None}
    start = text[: where.start(1)].count("%s") + where[1][: found.start()].count("%s")
    return _values((found[1] or found[2]).split(","), params, start=start)


def _values(operands: list[str], params: Any, *, start: int) -> set[int | None]:
    given: Sequence[Any] = params if isinstance(params, list | tuple) else ()
    values: set[int | None] = set()
    for operand in (text.strip() for text in operands):
        value = given[start] if operand == "%s" and start < len(given) else operand
        start += operand == "%s"
        # Only whole numbers: other keys may be random, and then differ from run to run.
        values.add(int(value) if isinstance(value, int) or (isinstance(value, str) and value.isdigit()) else None)
    return values or {None}
