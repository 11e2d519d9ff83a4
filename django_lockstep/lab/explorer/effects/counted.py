"""What the server counted during a step, held against what the statement's text says: the text may only narrow it.

A text does not say what triggers, cascades, functions, policies, views and domains do. The server does: for every
relation that a transaction has locked it counts scans, rows and blocks (PostgreSQL documentation, 27.2, "The Cumulative
Statistics System"; `pg_stat_get_xact_numscans` and its sisters). After each statement these are read in the session
that has sent it. What goes beyond the text is a fact about the statement, and the search begins again with it: so
everything that a step touches is known before its order with others is decided, also of steps that wait or fail.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from django_lockstep.lab.explorer.effects.catalog import Catalog, Fact, TableFacts
from django_lockstep.lab.explorer.effects.footprints import ADVISORY, Mode
from django_lockstep.lab.explorer.effects.statements import UNKNOWN, Statement, merge, writes_beyond
from django_lockstep.lab.wording import gettext

_ROW_LOCKS = frozenset({"RowShareLock", "RowExclusiveLock"})
"""Of what locks or writes rows; it may have locked some although it has changed none."""
_TABLE_LOCKS = frozenset(
    ["ShareUpdateExclusiveLock", "ShareLock", "ShareRowExclusiveLock", "ExclusiveLock", "AccessExclusiveLock"]
)
"""Of LOCK TABLE and of changes of the schema."""
COUNTED = re.compile(r"\s*\(*\s*(SELECT|INSERT|UPDATE|DELETE|MERGE|WITH|VALUES|TABLE)\b", re.IGNORECASE)
"""Statements of which all is counted, and which are the same as the only one of a transaction: others change more than
rows, fail there, or begin and end their own."""
_CHANGES = (Mode.NO_KEY_UPDATE, Mode.UPDATE)


@dataclass(slots=True)
class Count:
    """What was counted for one relation during a step."""

    scans: int = 0
    inserted: int = 0
    updated: int = 0
    hot: int = 0
    """Updates that changed no column with an index."""
    deleted: int = 0
    blocks: int = 0
    """Of the relation that were looked at, in whatever way."""
    modes: frozenset[str] = frozenset()
    """Of the locks on it that the transaction holds now."""
    new_modes: frozenset[str] = frozenset()
    """Of those that it did not hold before."""

    @property
    def changed(self) -> int:
        """Rows that were updated or deleted."""
        return self.updated + self.deleted


@dataclass(slots=True, kw_only=True)
class Counts:
    """What was counted during a step, by the relation's OID."""

    relations: Mapping[int, Count] = field(default_factory=dict)
    advisory: int = 0
    """Advisory locks that it took."""
    has_id: bool = True
    """Whether the transaction has a number by now: it has locked or written something, if it had none before."""
    after_failure: bool = False
    """Whether the transaction or savepoint is rolled back, so that its locks are not known any more."""


def facts_beyond(statement: Statement, counts: Counts, *, catalog: Catalog) -> Iterator[Fact]:
    """Yield what was counted beyond what the statement says."""
    if counts.advisory > sum(table == ADVISORY for (table, _), _ in statement.locks):
        yield "locks", ADVISORY
    tables = _by_table(counts, catalog)
    own = {table for table, _ in statement.writes}
    written = sum(count.inserted + count.updated for name, count in tables.items() if name in own)
    for name, count in tables.items():
        yield from _of_table(statement, name, count, written=written, after_failure=counts.after_failure)
    numbering = {sequence for name in own if (table := catalog.get(name)) for sequence in table.sequences}
    for oid, count in counts.relations.items():
        kind, name = catalog.relations.get(oid, ("foreign", "made meanwhile"))
        if kind == "foreign":
            yield "anything", f"a table on which nothing is counted ({name})"
        elif kind == "sequence" and (count.blocks or count.new_modes) and name not in numbering:
            yield "numbers", name


def _by_table(counts: Counts, catalog: Catalog) -> Mapping[str, Count]:
    """Return the counts of tables, with the scans of their indexes."""
    tables: dict[str, Count] = {}
    scans: Counter[str] = Counter()
    for oid, count in counts.relations.items():
        kind, name = catalog.relations.get(oid, ("", ""))
        if kind == "table":
            tables[name] = count
        elif kind == "index" and count.scans:  # that its blocks were looked at may be for an INSERT, or for the plan
            scans[name] += count.scans
    for name, more in scans.items():
        count = tables.get(name, Count())
        tables[name] = replace(count, scans=count.scans + more)
    return tables


def _of_table(statement: Statement, name: str, count: Count, *, written: int, after_failure: bool) -> Iterator[Fact]:
    if count.new_modes & _TABLE_LOCKS:
        yield "anything", f"a lock of the whole table {name}"
    inserts = ((name, None), Mode.INSERT) in statement.locks and not (statement.one_row and count.inserted > 1)
    says_so = _covers_changes(statement, name, count) and (inserts or not count.inserted)
    if count.updated != count.hot and name not in statement.entered:
        yield "entries", name
    # A column with an index was changed: which one is known only of what the statement itself sets.
    rekeys = count.updated != count.hot and (statement.guarded or not says_so)
    if rekeys:
        yield "rekeyed", name
    if rekeys or not says_so:
        yield "writes", name
    locked = {mode for (table, _), mode in statement.locks if table == name}
    scanned = count.scans > _scans(statement, name, written=written)
    named = locked or any(table == name for table, _ in statement.reads | statement.writes)
    if scanned or (count.blocks and not named):
        yield "reads", name
        yield "unordered", name
        # Row locks of a relation hold for every later scan of it: which of them has taken them is not counted.
        if _ROW_LOCKS & count.modes or after_failure:
            yield "locks", name
    elif "RowShareLock" in count.new_modes and not locked:
        yield "locks", name


def _covers_changes(statement: Statement, name: str, count: Count) -> bool:
    """Whether the statement says that it changes so many rows of the table."""
    whole = any(((name, None), mode) in statement.locks for mode in _CHANGES)
    named = {key for table, key in statement.writes if table == name and key is not None}
    return count.changed == 0 or (whole and (name, None) in statement.writes) or 0 < count.changed <= len(named)


def _scans(statement: Statement, name: str, *, written: int) -> float:
    """Return how many scans of the table the statement says: one for each key, and for each row that it refers to."""
    if (name, None) in statement.reads:
        return float("inf")
    parents = {key for (table, key), mode in statement.locks if table == name and mode is Mode.KEY_SHARE}
    # The server finds several keys by one scan or by several, and rows that refer to nothing by none: where a function
    # may have scanned as well, only what is exact is believed.
    if statement.runs_code and (statement.several_keys or None in parents):
        return 0
    return statement.lookups.count(name) + len(parents) * (1 if statement.one_row else written)


def widened(statement: Statement, discoveries: Collection[Fact], *, catalog: Catalog) -> Statement:
    """Return the statement with what it does beyond its text."""
    names: dict[str, set[str]] = defaultdict(set)
    for what, name in discoveries:
        names[what].add(name)
    if names["anything"]:
        reasons = frozenset(gettext("a statement uses {name}", name=name) for name in names["anything"])
        return replace(UNKNOWN, reasons=statement.reasons | reasons)
    read, locked = (frozenset((name, None) for name in names[what]) for what in ("reads", "locks"))
    numbers = frozenset(((f"sequence {name}", None), Mode.UNIQUE) for name in names["numbers"])
    # Deferred checks of what triggers and cascades have written are made at COMMIT, where nothing can be asked.
    written = [writes_beyond(catalog.get(name) or TableFacts(name=name)) for name in names["writes"]]
    more = merge(statement.kind, [statement, *written])
    return replace(
        statement,
        reads=more.reads | read,
        locks=more.locks | frozenset((key, Mode.UPDATE) for key in locked) | numbers,
        writes=more.writes,
        scanned=statement.scanned | names["reads"] | names["writes"],
        entered=statement.entered | names["writes"] | names["entries"],
        deferred=more.deferred,
        keys=None if names["writes"] or names["numbers"] else statement.keys,
    )
