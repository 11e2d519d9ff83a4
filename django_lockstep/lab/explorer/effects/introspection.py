"""Reads from the server's catalog what the counters do not show: functions with other effects, and when triggers act.

What a function reads, locks and writes is counted where it happens. Not counted are advisory locks that it tries or
gives back, notifications, settings, and what it reads of other sessions or servers. A function is beyond the counters
if its text has a word for that, or the name of a function that is; or if it has no text that can be read.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from django_lockstep.lab.wording import gettext

# Volatile ones of the server's own, as a rule: they change what is not a table, or tell of other sessions.
_UNCOUNTED = """
SELECT DISTINCT proname FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace AND prokind <> 'a'
AND (provolatile = 'v' OR proname ~ 'snapshot|xact|^txid_|^pg_stat_') AND proname NOT IN (
    'clock_timestamp', 'currval', 'gen_random_uuid', 'lastval', 'nextval', 'pg_advisory_xact_lock',
    'pg_advisory_xact_lock_shared', 'random', 'random_normal', 'setval', 'timeofday', 'uuidv4', 'uuidv7')
"""
_FUNCTIONS = """
SELECT p.oid, p.proname, l.lanname, p.provolatile <> 'v' OR p.proname ~ '^uuid_generate_v',
       concat(p.prosrc, pg_get_function_sqlbody(p.oid)),
       p.pronargs = 1 AND EXISTS (SELECT FROM pg_type t WHERE t.oid = p.proargtypes[0] AND t.typtype = 'c')
FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
WHERE p.pronamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)
"""
# What statements may call without naming it, or a table whose triggers do.
_USED = """
SELECT d.refobjid, r.ev_class FROM pg_depend d
LEFT JOIN pg_rewrite r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
WHERE d.refclassid = 'pg_proc'::regclass AND d.refobjid = ANY (%s) AND d.classid IN (
    'pg_attrdef'::regclass, 'pg_cast'::regclass, 'pg_class'::regclass, 'pg_constraint'::regclass,
    'pg_operator'::regclass, 'pg_policy'::regclass, 'pg_rewrite'::regclass, 'pg_type'::regclass)
"""
_UNCOUNTED_WORDS = re.compile(
    r"\b(pg_locks|pg_stat\w*|pg_prepared_\w+|pg_cursors|pg_settings|dblink\w*|notify|listen|unlisten)\b|"
    r"(?:^|;|\bbegin|\bthen|\belse|\bloop)\s*set\s",
    re.IGNORECASE,
)
"""Words for what is not counted: views of other sessions and of this one's state, other servers, settings."""
_READ_IN_TEXT = re.compile(r"(pg_try_advisory_xact_lock(_shared)?|set_config)$")
"""What a statement's own text says of them is enough, but not that a function calls them."""
_WORD = re.compile(r"[a-z_][\w$]*", re.IGNORECASE)
_CATCHES = re.compile(r"\bexception\s+when\b", re.IGNORECASE)
_READABLE, _BINARY = ("sql", "plpgsql"), ("c", "internal")
_WRITE = frozenset(
    ["insert", "update", "delete", "merge", "truncate", "copy", "execute", "call", "do", "nextval", "setval"]
)
"""Words of functions that may write."""
_READ = frozenset(["select", "from", "perform", "table", "with", "fetch", "open"])
"""Words of functions that may read."""
_NO_TABLE = re.compile(r"\bis\s+(?:not\s+)?distinct\s+from\b", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Functions:
    """What the database's own functions may do, by their OIDs and names."""

    touching: Mapping[int, str] = field(default_factory=dict)
    """Those that may touch tables, to read or to write."""
    uncounted: Mapping[int, str] = field(default_factory=dict)
    """Those whose effects the counters do not show."""
    writing: Mapping[int, str] = field(default_factory=dict)
    """Those that may write tables, or take numbers."""
    catch: bool = False
    """Whether one catches errors, at which its locks are released."""
    unnamed: frozenset[int] = frozenset()
    """Those that statements may call without naming them: as defaults, in constraints or policies, as ``row.name``."""
    views: frozenset[int] = frozenset()
    """Views that call one whose effects are not counted, by their OIDs."""
    servers: frozenset[str] = frozenset()
    """The server's own functions whose effects the counters do not show, by name."""

    @cached_property
    def hidden(self) -> str:
        """One whose effects the counters do not show, and that any statement may call; empty if there is none."""
        return min((self.uncounted[oid] for oid in self.unnamed & self.uncounted.keys()), default="")

    def run_any(self, functions: Mapping[int, str], names: Set[str] = frozenset()) -> bool:
        """Whether one of these functions runs, because a statement calls it by its name or without that."""
        return not (self.unnamed.isdisjoint(functions) and names.isdisjoint(functions.values()))


def read_functions(cursor: Any) -> Functions:
    """Return what the database's own functions may do."""
    servers = {name for (name,) in _rows(cursor, _UNCOUNTED)}
    functions = [_Function(*row) for row in _rows(cursor, _FUNCTIONS)]
    uncounted = _closure(functions, lambda it, names: is_uncounted(it.source) or it.names_any(servers | names))
    writing = _closure(functions, lambda it, names: it.names_any(_WRITE | names))
    used = list(
        _rows(
            cursor,
            _USED,
            [[function.oid for function in functions if not function.constant or function.language in _READABLE]],
        )
    )
    return Functions(
        touching=_closure(functions, lambda it, names: it.names_any(_READ | _WRITE | names)),
        uncounted=uncounted,
        writing=writing,
        catch=any(_CATCHES.search(function.source) for function in functions),
        unnamed=frozenset(function.oid for function in functions if function.of_row)
        | {oid for oid, view in used if view is None},
        views=frozenset(view for oid, view in used if view is not None and oid in uncounted),
        servers=frozenset(name for name in servers if not _READ_IN_TEXT.match(name)),
    )


@dataclass(frozen=True, slots=True)
class _Function:
    oid: int
    name: str
    language: str
    constant: bool
    """Whether it is said to change nothing."""
    source: str
    of_row: bool
    """Whether its one argument is a row."""

    def names_any(self, names: Set[str]) -> bool:
        """Whether its text has one of these words: also in strings and comments, as a string may be run."""
        return not names.isdisjoint(word.lower() for word in _WORD.findall(_NO_TABLE.sub("", self.source)))


def _closure(functions: Collection[_Function], has_effect: Callable[[_Function, Set[str]], bool]) -> Mapping[int, str]:
    """Return the functions that have an effect, or may call one that has, or cannot be read."""
    chosen: dict[int, str] = {}
    names: frozenset[str] = frozenset()
    while new := {
        function.oid: function.name
        for function in functions
        if function.oid not in chosen
        and (
            has_effect(function, names)
            if function.language in _READABLE
            else not (function.language in _BINARY and function.constant)
        )
    }:
        chosen |= new
        names |= set(new.values())
    return chosen


def is_uncounted(source: str) -> bool:
    """Whether a text has a word for something that is not counted."""
    return _UNCOUNTED_WORDS.search(source) is not None


_TRIGGERS = """
SELECT c.relname, t.tgname, p.proname, t.tgdeferrable, t.tgtype & 3 = 3,
       ARRAY(SELECT refobjid FROM pg_depend d WHERE d.classid = 'pg_trigger'::regclass AND d.objid = t.oid
             AND d.refclassid = 'pg_proc'::regclass),
       ARRAY(SELECT verb FROM (VALUES (4, 'INSERT'), (8, 'DELETE'), (16, 'UPDATE')) v (bit, verb)
             WHERE t.tgtype & bit <> 0)
FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_proc p ON p.oid = t.tgfoid
WHERE NOT t.tgisinternal AND t.tgenabled <> 'D' AND pg_table_is_visible(c.oid)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTriggers:
    """What the triggers of one table may do, by the verbs along with which they act."""

    touching: set[str] = field(default_factory=set)
    """One may read or write tables."""
    writing: set[str] = field(default_factory=set)
    """One may write other tables."""
    guards: set[str] = field(default_factory=set)
    """One may change the row before it is written, or skip it."""
    opaque: dict[str, set[str]] = field(default_factory=dict)
    """Sentences on why a verb may do anything, which the counters do not show; other verbs are missing."""


def read_triggers(cursor: Any, functions: Functions) -> defaultdict[str, TableTriggers]:
    """Return the triggers of all tables, by the table's name."""
    tables: defaultdict[str, TableTriggers] = defaultdict(TableTriggers)
    for table, name, function, deferrable, guards, called, verbs in _rows(cursor, _TRIGGERS):
        triggers = tables[table]
        if not functions.touching.keys().isdisjoint(called):
            triggers.touching.update(verbs)
        if not functions.writing.keys().isdisjoint(called):
            triggers.writing.update(verbs)
        if guards:
            triggers.guards.update(verbs)
        # At COMMIT nothing can be asked any more.
        why = gettext("may act at COMMIT") if deferrable else gettext("calls {function}()", function=function)
        if deferrable or not functions.uncounted.keys().isdisjoint(called):
            for verb in verbs:
                text = gettext("table {table}: its trigger {trigger} {why}", table=table, trigger=name, why=why)
                triggers.opaque.setdefault(verb, set()).add(text)
    return tables


def _rows(cursor: Any, sql: str, params: Any = None) -> Iterator[Any]:
    cursor.execute(sql, params)
    yield from cursor.fetchall()
