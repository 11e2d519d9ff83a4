"""Reads from a statement which rows it reads, locks and writes; `UNKNOWN` if it is not certain.

A recogniser for the SQL that Django generates, not a parser: a statement that is not certainly of a known form is
unknown, and the search then assumes that it depends on everything.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from django_lockstep.lab.explorer.catalog import Catalog, TableFacts
from django_lockstep.lab.explorer.clauses import conditions, key_condition, lists_tables, plain_text
from django_lockstep.lab.explorer.effects import UNKNOWN, Statement, delete, insert, merge, update
from django_lockstep.lab.explorer.footprints import LockedKey, Mode
from django_lockstep.lab.explorer.operations import Operation
from django_lockstep.lab.explorer.parts import Part, closing_parenthesis, split_parts
from django_lockstep.lab.explorer.session_settings import changes_session, is_harmless_set, isolation_level_set

__all__ = ["Statement", "parse", "parse_cached"]

_NAME = r'(?:"([^"]+)"|([a-z_][a-z0-9_]*))'
_LOCAL = re.compile(
    r"(BEGIN|START\s+TRANSACTION|SAVEPOINT|RELEASE\s+SAVEPOINT|CLOSE|SHOW|SET\s+TRANSACTION(?!\s+SNAPSHOT)|"
    r"SET\s+CONSTRAINTS\b.*\bDEFERRED$)\b",
    re.IGNORECASE,
)
_LEVEL_SET = re.compile(r"SET\s+(LOCAL\s+|SESSION\s+)?TRANSACTION_ISOLATION\b", re.IGNORECASE)
_COMMIT = re.compile(r"(COMMIT|END)( WORK| TRANSACTION)?( AND NO CHAIN)?", re.IGNORECASE)
_ROLLBACK = re.compile(r"(ROLLBACK|ABORT)( WORK| TRANSACTION)?( AND NO CHAIN)?", re.IGNORECASE)
_ROLLBACK_TO = re.compile(r"ROLLBACK (WORK |TRANSACTION )?TO\b", re.IGNORECASE)
_LOCKING = re.compile(r"\bFOR (NO KEY UPDATE|KEY SHARE|UPDATE|SHARE)\b", re.IGNORECASE)
_TABLES = re.compile(rf"\b(?:FROM|JOIN|INTO|UPDATE|USING)\s+(?:ONLY\s+)?{_NAME}(?!\s*\.)", re.IGNORECASE)
_QUALIFIED = re.compile(
    rf"\b(?:(?:FROM|JOIN|INTO|UPDATE)\s+(?:ONLY\s+)?(?:{_NAME}\s*\.|\()|USING\s+(?:ONLY\s+)?{_NAME}\s*\.)",
    re.IGNORECASE,
)
_CALL = re.compile(r'("[^"]*"|[a-z_][a-z0-9_.]*)\s*\(', re.IGNORECASE)
_COLUMNS = re.compile(r'\bINTO\s+(?:"[^"]*"|[a-z_][a-z0-9_]*)\s*\(', re.IGNORECASE)
"""A name before its columns, which is not a call."""
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
"""What may stand before a parenthesis: functions without side effects, and keywords."""
_ADVISORY = re.compile(r"\bpg_(?:try_)?advisory_xact_lock(_shared)?\s*\((?=\s*(%s\s*\))?)", re.IGNORECASE)
_ADVISORY_CONDITION = re.compile(
    r"\(\s*SELECT\s+pg_(?:try_)?advisory_xact_lock(?:_shared)?\s*(\((?:[^()]|\([^()]*\))*\))\s*\)\s+IS\s+NOT\s+NULL",
    re.IGNORECASE,
)
"""A condition that takes an advisory lock and is always true, so that it excludes no rows."""
_HIDING = re.compile(r"\b(SELECT|UNION|EXCEPT|INTERSECT|CASE|VALUES)\b", re.IGNORECASE)
"""Words after which a condition may not restrict the statement's own rows."""
_FROM_ARRAYS = re.compile(r"\bSELECT\s+\*\s+FROM\s+UNNEST\s*\(", re.IGNORECASE)
_EARLIER = "\ue000"
"""Stands for an earlier part of a WITH statement, which is not a table."""
_MODES = {
    "NO KEY UPDATE": Mode.NO_KEY_UPDATE,
    "KEY SHARE": Mode.KEY_SHARE,
    "UPDATE": Mode.UPDATE,
    "SHARE": Mode.SHARE,
}
_MOST_REMEMBERED = 4096
ADVISORY = "advisory lock"
"""The name of a table that stands for all advisory locks, as its rows."""


_CHANGES_SESSION = Statement(kind="UNKNOWN", changes_session=True)


def parse_cached(operation: Operation, catalog: Catalog) -> Statement:
    """Return the operation's statement, parsed once."""
    if operation.statement is None:
        operation.statement = _parse_remembered(operation, catalog)
    return operation.statement


def _parse_remembered(operation: Operation, catalog: Catalog) -> Statement:
    """Return the statement from the catalog's cache: every schedule sends the same few statements again."""
    given = operation.params if isinstance(operation.params, list | tuple) else ()
    # Other values, such as times, differ each time; only those that may be keys or names of settings matter.
    matters = _is_named if "set_config" in operation.sql.lower() else _may_be_key
    key = (operation.sql, tuple(value if matters(value) else None for value in given), operation.many)
    known: Statement | None = catalog.parsed.get(key)
    if known is None:
        if len(catalog.parsed) >= _MOST_REMEMBERED:
            catalog.parsed.clear()
        known = parse(operation.sql, operation.params, catalog=catalog, many=operation.many)
        catalog.parsed[key] = known
    return known


def _may_be_key(value: object) -> bool:
    """Whether it is an integer: other keys may be random, and differ from run to run."""
    if isinstance(value, str):
        return value.isascii() and value.isdigit()
    return isinstance(value, int) and not isinstance(value, bool)


def _is_named(value: object) -> bool:
    return isinstance(value, str) or _may_be_key(value)


def parse(sql: str, params: Any, *, catalog: Catalog, many: bool = False) -> Statement:
    """Return what the statement touches; `UNKNOWN` unless it is certainly understood."""
    text = plain_text(sql)
    word = (text or sql).strip().partition(" ")[0].upper()
    # The hooks append the cursor's query to FETCH; a FETCH in the code under test has none, and stays unknown.
    if text and word == "FETCH":
        return parse(text.partition(" ")[2], None, catalog=catalog)
    if text and ";" not in text and (statement := _parse_session_statement(text, sql)):
        return statement
    if changes_session(sql.strip(), params):
        return _CHANGES_SESSION
    if text is None:
        return UNKNOWN
    return _parse_parts(split_parts(text) if word == "WITH" else [Part(name="", text=text)], params, catalog, many=many)


def _parse_session_statement(text: str, sql: str) -> Statement | None:
    """Return a statement that touches no table; None if it is not one."""
    if _COMMIT.fullmatch(text):
        return Statement(kind="COMMIT")
    if _ROLLBACK.fullmatch(text) or _ROLLBACK_TO.match(text):
        return Statement(kind="ROLLBACK TO" if _ROLLBACK_TO.match(text) else "ROLLBACK")
    level = isolation_level_set(sql)
    is_local = _LOCAL.match(text) or (_LEVEL_SET.match(text) and level)
    if is_local or (re.match(r"SET\s+LOCAL\b", text, re.IGNORECASE) and is_harmless_set(text)):
        return Statement(kind="LOCAL", isolation=level, read_only="READ ONLY" in text.upper())
    return None


def _parse_parts(parts: list[Part], params: Any, catalog: Catalog, *, many: bool) -> Statement:
    """Return the union of the parts of a statement; they share one snapshot."""
    earlier: dict[Part, Statement] = {}
    for part in parts:
        given = params[part.start :] if isinstance(params, list | tuple) else params
        text = part.text
        for known, statement in earlier.items():
            text = _replace_earlier(known, statement, text, catalog)
        if catalog.get(part.name) is not None:
            return UNKNOWN  # which rows the name means then depends on its place
        earlier[part] = _parse_part(text, given, catalog=catalog, many=many)
    found = list(earlier.values())
    return merge(next((each.kind for each in found if each.kind != "SELECT"), "SELECT"), found)


def _replace_earlier(known: Part, statement: Statement, text: str, catalog: Catalog) -> str:
    """Replace an earlier part's name in a later part's text, by the key of its row if that is known."""
    name = rf'(?:"{re.escape(known.name)}"|\b{re.escape(known.name)}\b)'
    if len(statement.reads) == 1 and not known.renamed:
        ((table, key),) = statement.reads
        found = catalog.get(table)
        column = rf'(?:"{found.pk}"|\b{found.pk}\b)' if found is not None else "(?!)"
        if key is not None and not re.search(rf"\bAS\s+{column}", known.text, re.IGNORECASE):
            asked = rf"=\s*(?:\(\s*SELECT\s+{column}\s+FROM\s+{name}\s*\)|{name}\.{column})"
            text = re.sub(asked, f"= {key}", text, flags=re.IGNORECASE)
    return re.sub(rf"\b(FROM|JOIN)\s+{name}", rf'\1 "{_EARLIER}"', text, flags=re.IGNORECASE)


def _parse_part(text: str, params: Any, *, catalog: Catalog, many: bool) -> Statement:
    word = text.partition(" ")[0].upper()
    text = _replace_arrays(text) if word == "INSERT" else text
    if word not in {"SELECT", "INSERT", "UPDATE", "DELETE", "VALUES"} or _is_unsupported(text, catalog):
        return UNKNOWN
    advisory = _advisory_locks(text, params)
    # The parameters keep their order.
    statement = _parse_plain(word, _ADVISORY_CONDITION.sub(r"\1", text), params, catalog=catalog, many=many)
    return replace(statement, locks=statement.locks | advisory)


def _replace_arrays(text: str) -> str:
    """Rewrite an INSERT of rows from UNNEST of arrays as one with VALUES."""
    found = _FROM_ARRAYS.search(text)
    if found is None:
        return text
    end = closing_parenthesis(text, found.end())
    alone = re.match(r"\)\s*($|RETURNING\b|ON CONFLICT\b)", text[end:], re.IGNORECASE)
    return f"{text[: found.start()]}VALUES ({text[found.end() :]}" if alone else text


def _is_unsupported(text: str, catalog: Catalog) -> bool:
    """Whether the text contains what the rest of this module would misread."""
    calls = {name.lower() for name in _CALL.findall(_COLUMNS.sub("INTO (", text))}
    return bool(
        ";" in text
        or re.search(r"\bTABLE\b", text, re.IGNORECASE)
        or (_QUALIFIED.search(text) and not re.search(r"\b(FROM|JOIN)\s+\(\s*SELECT\b", text, re.IGNORECASE))
        or lists_tables(text)
        or calls - _HARMLESS
        or calls & catalog.own_functions
        or _sets_beyond_transaction(text)
    )


def _sets_beyond_transaction(text: str) -> bool:
    """Whether ``set_config()`` changes a setting beyond the transaction."""
    return "set_config" in text.lower() and not re.search(r"set_config\([^()]*,\s*true\s*\)", text, re.IGNORECASE)


def _parse_plain(word: str, text: str, params: Any, *, catalog: Catalog, many: bool) -> Statement:
    names = [quoted or bare.lower() for quoted, bare in _named_tables(word, text)]
    tables = [catalog.get(name) for name in names]
    # What is not in the catalog was created since, is in another schema, or is a function that returns rows.
    if any(table is None or table.special for table in tables) or (word in _WRITES and not tables):
        special = {f"{table.name} is a view, a partition, or has rules or policies" for table in tables if table}
        return replace(UNKNOWN, reasons=frozenset(special) if all(tables) else frozenset())
    known = [table for table in tables if table is not None]
    secured = frozenset().union(*(table.opaque.get("SELECT", frozenset()) for table in known))
    if secured:
        return replace(UNKNOWN, reasons=secured)
    if word not in _WRITES:
        return _parse_select(text, params, known, catalog)
    target = known[0]
    keys = _keys(text, params, target, catalog) if len(known) == 1 and not many else {None}
    others = frozenset((table.name, None) for table in known[1:])
    rows = frozenset((target.name, key) for key in keys)
    return _WRITES[word](text, target, rows=rows, others=others, catalog=catalog)


def _named_tables(word: str, text: str) -> list[tuple[str, str]]:
    # FOR UPDATE OF names a table that FROM has named; ON CONFLICT DO UPDATE SET names none.
    text = re.sub(r"\bDO UPDATE SET\b", "", _LOCKING.sub("", text), flags=re.IGNORECASE)
    return [(quoted, bare) for quoted, bare in _TABLES.findall(text) if bare.upper() != "SELECT" and quoted != _EARLIER]


def _parse_select(text: str, params: Any, tables: list[TableFacts], catalog: Catalog) -> Statement:
    one = _keys(text, params, tables[0], catalog) if len(tables) == 1 else {None}
    reads = frozenset((table.name, key) for table in tables for key in one)
    strengths = _LOCKING.findall(text)
    # SELECT INTO creates a table.
    if "INTO" in text.upper().split():
        return UNKNOWN
    # OF is not read: the strongest lock counts for every table. That may be too many locks, never too few.
    mode = max((_MODES[name.upper()] for name in strengths), default=None)
    locks = frozenset((key, mode) for key in reads) if mode is not None else frozenset()
    return Statement(kind="SELECT", reads=reads, locks=locks)


def _advisory_locks(text: str, params: Any) -> frozenset[LockedKey]:
    """Return advisory locks as row locks of one table; the key is known if it is a single parameter."""
    locks = set()
    for called in _ADVISORY.finditer(text):
        keys = _values(["%s"], params, start=text[: called.start()].count("%s")) if called[2] else {None}
        locks |= {((ADVISORY, key), Mode.SHARE if called[1] else Mode.UPDATE) for key in keys}
    return frozenset(locks)


_WRITES = {"INSERT": insert, "UPDATE": update, "DELETE": delete}


def _keys(text: str, params: Any, table: TableFacts, catalog: Catalog) -> set[int | None]:
    """Return the primary keys that the WHERE clause restricts the statement to; {None} if that is not certain."""
    if table.pk is None or table.name in catalog.rekeyed or _HIDING.search(text, 1):
        return {None}
    for place, condition in conditions(text):
        if found := key_condition(condition, table=table.name, column=table.pk):
            before, operands = found
            return _values(operands, params, start=text[:place].count("%s") + before.count("%s"))
    return {None}


def _values(operands: list[str], params: Any, *, start: int) -> set[int | None]:
    given: Sequence[Any] = params if isinstance(params, list | tuple) else ()
    values: set[int | None] = set()
    for operand in (text.strip() for text in operands):
        value = given[start] if operand == "%s" and start < len(given) else operand
        start += operand == "%s"
        values.add(int(value) if _may_be_key(value) else None)
    return values or {None}
