"""Which rows a statement reads, locks and writes, by its text and the catalog: what the server counted may be more.

Of a statement whose text is not understood, what the server counted is all that is known. `UNKNOWN` is one that does
what is not counted, and depends on everything.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from django_lockstep.lab.explorer.effects.catalog import Catalog, TableFacts
from django_lockstep.lab.explorer.effects.counted import COUNTED, widened
from django_lockstep.lab.explorer.effects.footprints import ADVISORY, FootprintKey, Mode
from django_lockstep.lab.explorer.effects.introspection import is_uncounted
from django_lockstep.lab.explorer.effects.operations import Operation
from django_lockstep.lab.explorer.effects.queries import Query, identifier, only, parameter, read_text
from django_lockstep.lab.explorer.effects.statements import UNKNOWN, Key, Statement, delete, insert, merge, update
from django_lockstep.lab.wording import gettext

_UNUSUAL = re.compile(r"\b[eE]'|\b[uU]&['\"]|\$\w*\$|%[bt]\b|==")
"""Strings with escapes, strings in dollars, parameters of another kind, an operator that only sqlglot has."""
_LOCAL = re.compile(
    r"(BEGIN|START\s+TRANSACTION|SAVEPOINT|RELEASE\s+SAVEPOINT|CLOSE|SHOW|SET\s+TRANSACTION(?!\s+SNAPSHOT)|"
    r"SET\s+CONSTRAINTS\b.*\bDEFERRED$)\b",
    re.IGNORECASE,
)
_LEVEL_SET = re.compile(r"SET\s+(LOCAL\s+|SESSION\s+)?TRANSACTION_ISOLATION\b", re.IGNORECASE)
_COMMIT = re.compile(r"(COMMIT|END)( WORK| TRANSACTION)?( AND NO CHAIN)?", re.IGNORECASE)
_ROLLBACK = re.compile(r"(ROLLBACK|ABORT)( WORK| TRANSACTION)?( AND NO CHAIN)?", re.IGNORECASE)
_ROLLBACK_TO = re.compile(r"ROLLBACK (WORK |TRANSACTION )?TO\b", re.IGNORECASE)
_CALL = re.compile(r'(?:"([^"]+)"|([a-z_][\w$]*))\s*\(', re.IGNORECASE)
_MODES = {
    (True, False): Mode.UPDATE,
    (True, True): Mode.NO_KEY_UPDATE,
    (False, False): Mode.SHARE,
    (False, True): Mode.KEY_SHARE,
}
"""By whether a locking clause says UPDATE, and whether it says KEY."""
_ADVISORY = {
    "pg_advisory_xact_lock": Mode.UPDATE,
    "pg_advisory_xact_lock_shared": Mode.SHARE,
    "pg_try_advisory_xact_lock": Mode.UPDATE,
    "pg_try_advisory_xact_lock_shared": Mode.SHARE,
}
_MOST_REMEMBERED = 4096
_CHANGES_SESSION = Statement(kind="UNKNOWN", changes_session=True)


def parse_cached(operation: Operation, catalog: Catalog) -> Statement:
    """Return the operation's statement, parsed once."""
    if operation.statement is None:
        statement = _parse_remembered(operation, catalog)
        discoveries = catalog.facts.get(operation.template)
        operation.statement = widened(statement, discoveries, catalog=catalog) if discoveries else statement
    return operation.statement


def _parse_remembered(operation: Operation, catalog: Catalog) -> Statement:
    """Return the statement from the catalog's cache: every schedule sends the same few statements again."""
    params = operation.params if isinstance(operation.params, list | tuple) else ()
    # Other values, such as times, differ each time; only those that may be keys or names of settings matter.
    names_setting = "set_config" in operation.sql.lower()
    values = (value if _is_key(value) or (names_setting and isinstance(value, str)) else None for value in params)
    key = (operation.sql, tuple(values), operation.many)
    statement: Statement | None = catalog.parsed.get(key)
    if statement is None:
        if len(catalog.parsed) >= _MOST_REMEMBERED:
            catalog.parsed.clear()
        statement = parse(operation.sql, operation.params, catalog=catalog, many=operation.many)
        catalog.parsed[key] = statement
    return statement


def _is_key(value: object) -> bool:
    """Whether it is an integer: other keys may be random, and differ from run to run."""
    if isinstance(value, str):
        return value.isascii() and value.isdigit()
    return isinstance(value, int) and not isinstance(value, bool)


def _key(params: Any, node: Any) -> int | None:
    """Return the key that an operand stands for, a parameter or a number; None if that is not certain."""
    inner = node.unnest()
    if isinstance(inner, exp.Cast) and inner.is_type("BIGINT", "INT", "SMALLINT"):
        inner = inner.this.unnest()
    value = inner.name if isinstance(inner, exp.Literal) and not inner.is_string else None
    number = parameter(inner)
    if number is not None and isinstance(params, list | tuple) and number < len(params):
        value = params[number]
    return int(value) if value is not None and _is_key(value) else None


def parse(sql: str, params: Any, *, catalog: Catalog, many: bool = False) -> Statement:
    """Return what the statement's text says that it touches; nothing where it is counted, but not understood."""
    text = sql.strip().rstrip(";").rstrip()
    plain = not _UNUSUAL.search(text)
    word, _, rest = text.partition(" ")
    # The hooks append the cursor's query to FETCH; a FETCH in the code under test has none, and stays unknown.
    if plain and word.upper() == "FETCH":
        return parse(rest, None, catalog=catalog)
    if plain and ";" not in text and (statement := _parse_session_statement(text)):
        return statement
    if changes_session(sql.strip(), params):
        return _CHANGES_SESSION
    calls = {quoted or bare.lower() for quoted, bare in _CALL.findall(text)}
    functions = catalog.functions
    uncounted = sorted(calls & functions.servers.union(functions.uncounted.values()))
    uncounted = uncounted or list(filter(None, [functions.hidden]))
    counted = COUNTED.match(text)
    if counted is None or ";" in text or is_uncounted(text) or uncounted:
        return replace(
            UNKNOWN,
            reasons=frozenset(gettext("a statement calls {function}()", function=name) for name in uncounted[:1]),
        )
    query_text = read_text(text) if plain else None
    statement = None
    if query_text is not None and not any(map(catalog.get, query_text.names)):
        statement = _parse_parts(query_text.parts, functools.partial(_key, () if many else params), catalog)
    if statement is None:
        return Statement(kind=counted[1].upper(), hidden=True)
    return replace(
        statement,
        hidden=statement.hidden or functions.run_any(functions.writing, calls),
        runs_code=statement.runs_code or functions.run_any(functions.touching, calls),
        one_row=statement.one_row and not many,
    )


def _parse_session_statement(text: str) -> Statement | None:
    """Return a statement that touches no table; None if it is not one."""
    if _COMMIT.fullmatch(text):
        return Statement(kind="COMMIT")
    if _ROLLBACK.fullmatch(text) or _ROLLBACK_TO.match(text):
        return Statement(kind="ROLLBACK TO" if _ROLLBACK_TO.match(text) else "ROLLBACK")
    level = isolation_level_set(text)
    is_local = _LOCAL.match(text) or (_LEVEL_SET.match(text) and level)
    if is_local or (re.match(r"SET\s+LOCAL\b", text, re.IGNORECASE) and is_harmless_set(text)):
        return Statement(kind="LOCAL", isolation=level, read_only="READ ONLY" in text.upper())
    return None


def _parse_parts(parts: Iterable[Query], key: Key, catalog: Catalog) -> Statement | None:
    """Return the union of the parts of a statement, which share one snapshot; None if one is not understood."""
    statements: list[Statement] = []
    for query in parts:
        # Which rows the name of a part means depends on its place if a table has it, too.
        if catalog.get(query.name) is not None or not query.verb:
            return None
        # It makes a table, or changes a setting beyond the transaction.
        settings = [arguments[2:] for name, arguments in query.calls if name == "set_config"]
        lasts = any(not (len(args) == 1 and isinstance(args[0], exp.Boolean) and args[0].this) for args in settings)
        if lasts or query.tree.find(exp.Into) is not None:
            return UNKNOWN
        statement = _parse_query(query, key, catalog)
        if statement is None:
            return None
        statements.append(statement)
    if len(statements) == 1:
        return statements[0]
    kind = next((part.kind for part in statements if part.kind != "SELECT"), "SELECT")
    return merge(kind, statements) if statements else None


def _parse_query(query: Query, key: Key, catalog: Catalog) -> Statement | None:
    tables = [catalog.get(name) for name in query.tables]
    in_catalog = [table for table in tables if table is not None]
    # What is not in the catalog is of another schema, or new; what leads to other tables is counted there.
    if len(in_catalog) < len(tables) or any(table.special for table in in_catalog):
        return None
    verbs = ("INSERT", "UPDATE") if query.on_conflict else (query.verb,)
    reasons = frozenset().union(*(table.triggers.opaque.get(verb, ()) for table in in_catalog for verb in verbs))
    if reasons:
        return replace(UNKNOWN, reasons=reasons)
    keys = _keys(query, in_catalog[0], key, catalog) if len(in_catalog) == 1 else {None}
    rows = frozenset((table.name, pk) for table in in_catalog for pk in keys)
    scanned = frozenset(table.name for table in in_catalog) if not query.finds_by_one_column else frozenset()
    statement: Statement | None = Statement(kind="SELECT", reads=rows)
    if query.verb != "SELECT":
        statement = _parse_write(query, in_catalog, rows, catalog=catalog, key=key)
    if statement is None:
        return None
    # A subquery of a write may lock rows, too. OF is not read: each strength counts for every table, which may be too
    # many locks, never too few.
    modes = {_MODES[bool(lock.args.get("update")), bool(lock.args.get("key"))] for lock in query.locks}
    locks = frozenset((row, mode) for mode in modes for row in statement.reads)
    # A row that is joined may come back several times, and one that a subquery locks not at all.
    joins = any(query.tree.args.get(part) for part in ("joins", "laterals"))
    plain = query.verb == "SELECT" and query.tree.args.get("locks") and len(modes) == 1 and not joins
    row_locks = locks if plain else frozenset() if modes else statement.row_locks
    # Advisory locks are row locks of one table; those of names, which the server hashes, may be any.
    locks |= statement.locks.union(
        ((ADVISORY, key(arguments[0]) if len(arguments) == 1 else None), _ADVISORY[name])
        for name, arguments in query.calls
        if name in _ADVISORY
    )
    return replace(
        statement,
        locks=locks,
        row_locks=row_locks,
        scanned=scanned,
        unordered=_unordered(query, in_catalog) if None in keys else frozenset(),
        limit=query.limit,
        hidden=bool(in_catalog) and not in_catalog[0].hidden.isdisjoint(verbs),
        guarded=bool(in_catalog) and not in_catalog[0].triggers.guards.isdisjoint(verbs),
        runs_code=bool(in_catalog) and not in_catalog[0].triggers.touching.isdisjoint(verbs),
        lookups=tuple(table for table, pk in rows if pk is not None),
        several_keys=len(keys) > 1,
    )


def _unordered(query: Query, tables: Sequence[TableFacts]) -> frozenset[str]:
    """Return the tables whose rows come, or are locked, in an order that the server chooses."""
    if query.verb == "SELECT":
        return frozenset(table.name for table in tables if query.shows_order(tables[0].keys))
    # A write locks rows in that order; which ones a subquery with LIMIT chooses depends on it, too.
    limited = query.verb == "INSERT" or query.tree.find(exp.Limit) is not None
    own = () if query.verb == "INSERT" or query.locks_first(tables[0].keys) else tables[:1]
    return frozenset(table.name for table in (tables[1:] if limited else ())).union(table.name for table in own)


def _parse_write(
    query: Query, tables: Sequence[TableFacts], rows: frozenset[FootprintKey], *, catalog: Catalog, key: Key
) -> Statement | None:
    if not tables or query.target_name != tables[0].name:
        return None
    target, others = tables[0], frozenset((table.name, None) for table in tables[1:])
    own = frozenset(row for row in rows if row[0] == target.name)
    return _WRITES[query.verb](query, target, rows=own, others=others, catalog=catalog, key=key)


_WRITES = {"INSERT": insert, "UPDATE": update, "DELETE": delete}


def _keys(query: Query, table: TableFacts, key: Key, catalog: Catalog) -> set[int | None]:
    """Return the primary keys that WHERE restricts the statement to; {None} if that is not certain."""
    source = query.target
    # The condition may be about a subquery's columns, or about columns that are renamed.
    direct = query.target_name == table.name and not source.alias_column_names
    if not direct or table.pk is None or table.name in catalog.noted("rekeyed"):
        return {None}
    for column, operands in query.comparisons:
        if query.table_of(column) == table.name and identifier(column) == table.pk and only(column, "this", "table"):
            return set(map(key, operands))
    return {None}


# SET and set_config(): whether they are harmless, set the isolation level, or change what names mean.

_LEVEL = re.compile(
    r"\b(?:ISOLATION\s+LEVEL\s+|transaction_isolation\s*(?:=|TO\b)\s*)'?"
    r"(READ\s+COMMITTED|READ\s+UNCOMMITTED|REPEATABLE\s+READ|SERIALIZABLE)\b",
    re.IGNORECASE,
)
_SET = re.compile(r'(?:SET|RESET)\s+(?:LOCAL\s+|SESSION\s+)?"?([\w.]+)"?', re.IGNORECASE)
_OF_TRANSACTION = re.compile(r"SET\s+(TRANSACTION\s+(?!SNAPSHOT)|CONSTRAINTS\b)", re.IGNORECASE)
_CONFIGURED = re.compile(r"\bset_config\s*\(\s*(?:'([^']*)'|(%s)|)", re.IGNORECASE)
_HARMLESS = re.compile(
    r"\w+\.\w+|\w+_timeout|application_name|client_min_messages|datestyle|jit|(maintenance_)?work_mem|"
    r"synchronous_commit|time|timezone",
    re.IGNORECASE,
)
"""Settings of the application's own, and those that change only how the session waits or prints; TIME ZONE is one."""


def isolation_level_set(sql: str) -> str | None:
    """Return the isolation level that the statement sets for its transaction; None if it does not."""
    match = _LEVEL.search(sql)
    return " ".join(match[1].lower().split()).replace("uncommitted", "committed") if match else None


def changes_session(sql: str, params: Any) -> bool:
    """Whether a statement that was not understood may change names, levels or transactions of the session."""
    return any(_part_changes_session(part.strip()) for part in sql.split(";")) or not _sets_only_harmless(sql, params)


def _part_changes_session(part: str) -> bool:
    word = part.partition(" ")[0].upper()
    if re.search(r"\btransaction_isolation\b|\bISOLATION LEVEL\b", part, re.IGNORECASE) and word != "SELECT":
        return isolation_level_set(part) != "read committed" or "CHARACTERISTICS" in part.upper()
    if word in {"SET", "RESET"}:
        return not (_OF_TRANSACTION.match(part) or is_harmless_set(part))
    return word in {"DISCARD", "CREATE", "ALTER", "DROP", "PREPARE", "COMMIT", "END", "ROLLBACK", "ABORT"}


def is_harmless_set(sql: str) -> bool:
    """Whether a SET changes only how the session waits or prints; not its role, schemas, triggers or plans."""
    match = _SET.match(sql)
    return match is not None and _HARMLESS.fullmatch(match[1]) is not None


def _sets_only_harmless(sql: str, params: Any) -> bool:
    """Whether every ``set_config()`` in the statement is harmless."""
    values: Sequence[Any] = params if isinstance(params, list | tuple) else ()
    for match in _CONFIGURED.finditer(sql):
        place = sql[: match.start()].count("%s")
        name = values[place] if match[2] and place < len(values) else match[1]
        if not _HARMLESS.fullmatch(str(name)):
            return False
    return True
