"""What the database's catalog says about tables: keys, references, and what writing them does beyond the statement."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django_lockstep.lab.explorer.effects.introspection import Functions, TableTriggers, read_functions, read_triggers

EVERY_COLUMN = "*"
"""Stands for all columns of a row."""
TABLE_NAME = """CASE WHEN pg_table_is_visible({0}) THEN (SELECT relname::text FROM pg_class WHERE oid = {0})
            ELSE {0}::text END"""
"""The name of a table, of type ``regclass``, with its schema only where it needs one."""
# Of types whose values are equal only if their texts are, by the server's own comparison, under collations that take no
# different letters for equal.
_IS_EXACT = """
SELECT bool_and(a.attgenerated = '' AND a.atttypid = ANY ('{int2,int4,int8,uuid,text,varchar}'::regtype[])
                AND o.opcnamespace = 'pg_catalog'::regnamespace AND coalesce(l.collisdeterministic, true))
       AND i.indexprs IS NULL AND NOT i.indisexclusion
FROM unnest(i.indkey) WITH ORDINALITY AS k (attnum, place)
JOIN pg_opclass o ON o.oid = i.indclass[k.place - 1]
LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
LEFT JOIN pg_collation l ON l.oid = i.indcollation[k.place - 1] WHERE k.place <= i.indnkeyatts
"""
# Column numbers stand in the stored trees of an index's expressions and of its condition.
_IN_TREE = r"SELECT found[1]::int FROM regexp_matches({}::text, ':varattno (\d+)', 'g') AS found"
_INDEX_COLUMNS = """ARRAY(SELECT DISTINCT a.attname FROM pg_attribute a
                      WHERE a.attrelid = i.indrelid AND a.attnum IN ({}) ORDER BY 1)"""
_KEYS = "SELECT k.n FROM unnest(i.indkey) WITH ORDINALITY k (n, place) WHERE k.place <= i.indnkeyatts"
UNIQUE_INDEXES = f"""
       (SELECT coalesce(jsonb_agg(jsonb_build_object(
                   'name', n.relname, 'exact', ({_IS_EXACT}), 'valid', i.indisvalid,
                   'columns', {_INDEX_COLUMNS.format(f"{_KEYS} UNION {_IN_TREE.format('i.indexprs')}")},
                   'predicate', {_INDEX_COLUMNS.format(_IN_TREE.format("i.indpred"))},
                   'required', NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = i.indrelid
                                           AND a.attnum = ANY (i.indkey) AND NOT a.attnotnull),
                   'nulls_distinct', coalesce(to_jsonb(i)->>'indnullsnotdistinct', 'false') = 'false')), '[]')
        FROM pg_index i JOIN pg_class n ON n.oid = i.indexrelid
        WHERE i.indrelid = c.oid AND (i.indisunique OR i.indisexclusion))"""
"""The unique indexes and exclusion constraints of a table ``c``, for `UniqueIndex.parse`."""
FOREIGN_KEYS = f"""
       (SELECT coalesce(jsonb_agg(jsonb_build_object(
                   'parent', {TABLE_NAME.format("f.confrelid::regclass")},
                   'columns', ARRAY(SELECT CASE attgenerated WHEN '' THEN attname ELSE '{EVERY_COLUMN}' END
                                    FROM pg_attribute WHERE attrelid = c.oid AND attnum = ANY (f.conkey)),
                   'to_key', EXISTS (SELECT FROM pg_index i WHERE i.indrelid = f.confrelid AND i.indisprimary
                                     AND i.indnkeyatts = 1 AND f.confkey = ARRAY[i.indkey[0]]))), '[]')
        FROM pg_constraint f WHERE f.conrelid = c.oid AND f.contype = 'f')"""
"""The references of a table ``c``, for `ForeignKey.parse`."""
# Columns of an index expression are not listed there, nor those that a generated column is computed from, so that such
# an index counts as being on all columns.
_UNIQUE_COLUMNS = """ARRAY(SELECT DISTINCT a.attname FROM pg_index i
             JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum > 0
             AND (a.attnum = ANY (i.indkey) OR 0 = ANY (i.indkey) OR i.indpred IS NOT NULL OR EXISTS (
                  SELECT FROM pg_attribute g WHERE g.attrelid = i.indrelid AND g.attnum = ANY (i.indkey)
                  AND g.attgenerated <> ''))
             WHERE i.indrelid = c.oid AND (i.indisunique OR i.indisexclusion))::text[]"""
_TABLES = f"""
SELECT c.relname,
       -- A generated key does not count, because it changes with other columns.
       (SELECT CASE WHEN count(*) = 1 AND min(a.attgenerated) = '' THEN min(a.attname) END
        FROM pg_index i JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY (i.indkey)
        WHERE i.indrelid = c.oid AND i.indisprimary),
       {_UNIQUE_COLUMNS},
       {UNIQUE_INDEXES},
       ARRAY(SELECT a.attname FROM pg_attribute a
             LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
             WHERE a.attrelid = c.oid AND a.attnum > 0 AND (a.attidentity <> '' OR
                   pg_get_expr(d.adbin, d.adrelid) ~ '^nextval\\(''[^'']+''::regclass\\)$')
             -- A number that the database computes with is not any number.
             AND NOT EXISTS (SELECT FROM pg_constraint k WHERE k.conrelid = c.oid AND k.contype = 'c'
                             AND a.attnum = ANY (k.conkey))
             AND NOT EXISTS (SELECT FROM pg_depend x WHERE x.refclassid = 'pg_class'::regclass
                             AND x.refobjid = c.oid AND x.refobjsubid = a.attnum
                             AND x.classid = 'pg_attrdef'::regclass AND x.objid IS DISTINCT FROM d.oid))::text[],
       EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND NOT i.indimmediate),
       {FOREIGN_KEYS},
       -- Those of its defaults, and those of its identity columns or owned by others.
       ARRAY(SELECT s.oid::regclass::text FROM pg_attrdef d JOIN pg_depend x ON x.classid = 'pg_attrdef'::regclass
             AND x.objid = d.oid JOIN pg_class s ON s.oid = x.refobjid AND s.relkind = 'S' WHERE d.adrelid = c.oid
             UNION SELECT s.oid::regclass::text FROM pg_depend x JOIN pg_class s ON s.oid = x.objid AND s.relkind = 'S'
             WHERE x.classid = 'pg_class'::regclass AND x.refclassid = 'pg_class'::regclass AND x.refobjid = c.oid
             AND x.deptype IN ('a', 'i')),
       (SELECT coalesce(jsonb_agg(jsonb_build_array(
                   {TABLE_NAME.format("f.conrelid::regclass")}, f.confdeltype::text, f.confupdtype::text)), '[]')
        FROM pg_constraint f WHERE f.confrelid = c.oid AND f.contype = 'f'),
       EXISTS (SELECT FROM pg_rewrite w WHERE w.ev_class = c.oid) OR c.relkind <> 'r' OR c.relhassubclass,
       -- A default that computes the name of a sequence has no dependency on it.
       EXISTS (SELECT FROM pg_attrdef d WHERE d.adrelid = c.oid
               AND d.adbin::text ~ (':funcid ' || 'nextval(regclass)'::regprocedure::oid || ' ')
               AND NOT EXISTS (SELECT FROM pg_depend x JOIN pg_class s ON s.oid = x.refobjid AND s.relkind = 'S'
                               WHERE x.classid = 'pg_attrdef'::regclass AND x.objid = d.oid))
FROM pg_class c WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND pg_table_is_visible(c.oid)
     AND c.relnamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)
"""
_ROW_LOCKS = """
SELECT least(page, CASE WHEN table_ < 0 THEN all_ / -table_ - 1 ELSE table_ END) FROM (
    SELECT current_setting('max_pred_locks_per_page')::int, current_setting('max_pred_locks_per_relation')::int,
           current_setting('max_pred_locks_per_transaction')::int) AS limits (page, table_, all_)
"""
_RELATIONS = f"""
SELECT c.oid, c.relkind, CASE WHEN c.relkind = 'S' THEN c.oid::regclass::text
                              ELSE {TABLE_NAME.format("coalesce(i.indrelid, c.oid)::regclass")} END
FROM pg_class c LEFT JOIN pg_index i ON i.indexrelid = c.oid
WHERE c.oid >= 16384 AND c.relkind IN ('r', 'i', 'S', 'm', 'p', 'I', 'v', 'f')
"""
_KINDS = {"S": "sequence", "i": "index", "p": "view", "I": "view", "v": "view", "f": "foreign"}
"""What relations are to the counters: nothing is counted for views and partitioned tables, but for their tables."""


_LEARNED = {"rekeyed": ["rekeyed"], "ordered": ["read", "filled"], "unordered": ["taken", "changed"]}
"""What is learned of a table once all of this was noted of it; see `Catalog.note`."""
Fact = tuple[str, str]
"""What a statement does beyond its text, and the table or sequence that it does it to; see `effects.counted`."""
LearnedFact = tuple[str, str, str]
"""A word for what, the table or sequence, and the statement's template, empty where it is true of all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLayout:
    """What a table is, whatever its rows are."""

    oid: int
    stored: Sequence[str]
    """The columns that store what is inserted, which generated columns do not."""
    hidden: Sequence[str]
    """Those that sequences number, and times and UUIDs: their values differ from run to run."""
    shown: Sequence[str]
    """Those that are neither times nor UUIDs."""
    obstacle: str | None = None
    """Why its rows cannot be put back, in words."""


def quote_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def quote_literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@dataclass(frozen=True, slots=True, kw_only=True)
class UniqueIndex:
    """A unique index, or an exclusion constraint."""

    name: str = ""
    columns: tuple[str, ...]
    """With those that only its expressions name."""
    predicate: tuple[str, ...] = ()
    """Columns of its WHERE clause."""
    exact: bool = True
    """Whether it compares just the values of its columns, and as texts."""
    nulls_distinct: bool = True
    """Whether rows with NULL in one of them never conflict."""
    required: bool = False
    """Whether none of its columns may be NULL."""
    valid: bool = True
    """Whether it was built to its end."""

    @classmethod
    def parse(cls, data: Mapping[str, Any]) -> UniqueIndex:
        """Return what JSON has of it."""
        return cls(**{**data, "columns": tuple(data["columns"]), "predicate": tuple(data["predicate"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignKey:
    """A reference from columns of one table to another one, or the same."""

    parent: str
    """The table that it refers to."""
    columns: tuple[str, ...]
    """The columns that refer; `EVERY_COLUMN` for one that is generated from others."""
    to_key: bool = True
    """Whether they refer to the primary key."""

    @classmethod
    def parse(cls, data: Mapping[str, Any]) -> ForeignKey:
        """Return what JSON has of it."""
        return cls(**{**data, "columns": tuple(data["columns"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """What decides the footprint of statements on one table."""

    name: str
    pk: str | None = None
    """The primary key's column; None if it has several, or none."""
    unique: frozenset[str] = frozenset()
    """Columns of unique indexes and exclusion constraints: changing them takes the stronger lock, and may wait for
    another row's writer."""
    indexes: tuple[UniqueIndex, ...] | None = None
    """Its unique indexes and exclusion constraints; None if they are not known."""
    numbered: frozenset[str] = frozenset()
    """Columns whose default is the next number of a sequence."""
    deferred: bool = False
    """Whether a unique or exclusion constraint may be checked at COMMIT."""
    foreign_keys: frozenset[ForeignKey] = frozenset()
    """Its references to other tables."""
    children: frozenset[str] = frozenset()
    """Tables that refer to it."""
    sequences: frozenset[str] = frozenset()
    """Sequences that number its rows."""
    hidden: frozenset[str] = frozenset()
    """Verbs along with which triggers, references or defaults may write other tables, or take any number."""
    triggers: TableTriggers = field(default_factory=TableTriggers, hash=False)
    """What its triggers may do."""
    special: bool = False
    """Whether it is a view, has partitions or heirs, or rules."""

    @property
    def keys(self) -> list[frozenset[str]]:
        """Sets of columns whose values belong to one row at most."""
        indexes = [index for index in self.indexes or () if index.exact and index.required and not index.predicate]
        return [*([frozenset({self.pk})] if self.pk else []), *(frozenset(index.columns) for index in indexes)]

    @property
    def parents(self) -> frozenset[str]:
        """Tables that it refers to."""
        return frozenset(key.parent for key in self.foreign_keys)


class Catalog:
    """The tables that unqualified names mean on one connection."""

    def __init__(self, tables: Iterable[TableFacts], *, functions: Functions = Functions()) -> None:  # noqa: B008
        self._tables: Mapping[str, TableFacts] = {table.name: table for table in tables}
        self.relations: Mapping[int, tuple[str, str]] = {}
        """What each OID is, and the name: of an index that of its table."""
        users = Counter(sequence for table in self._tables.values() for sequence in table.sequences)
        self._numbering_several = frozenset(sequence for sequence, count in users.items() if count > 1)
        self.shared_sequences = self._numbering_several
        """Sequences that several tables take numbers from, or others than INSERTs into theirs."""
        self.sequences: frozenset[str] = frozenset()
        """The names of all sequences."""
        self.functions = functions
        self.facts: dict[str, set[Fact]] = defaultdict(set)
        """What statements do beyond their texts, by these without what differs from run to run."""
        self.most_row_locks = 2
        """How many rows of a table a SERIALIZABLE transaction locks singly, before the server locks pages, or all."""
        self._notes: dict[str, set[str]] = defaultdict(set)
        """Names of tables, by what was noted of them."""
        self.parsed: dict[tuple[object, ...], Any] = {}
        """Statements that were parsed with these tables; see `sql.parse_cached`."""
        self.layouts: dict[str, TableLayout] = {}
        """Layouts of these tables, as far as they were read; see `saved_tables`."""

    @classmethod
    def load(cls, cursor: Any) -> Catalog:
        """Read the catalog from the server."""
        functions = read_functions(cursor)
        triggers = read_triggers(cursor, functions)
        cursor.execute(_TABLES)
        catalog = cls((_table(*row, triggers=triggers[row[0]]) for row in cursor.fetchall()), functions=functions)
        cursor.execute(_RELATIONS)
        catalog.relations = {
            oid: ("foreign" if oid in functions.views else _KINDS.get(kind, "table"), name)
            for oid, kind, name in cursor.fetchall()
        }
        catalog.sequences = frozenset(name for kind, name in catalog.relations.values() if kind == "sequence")
        cursor.execute(_ROW_LOCKS)
        ((catalog.most_row_locks,),) = cursor.fetchall()
        return catalog

    def get(self, name: str) -> TableFacts | None:
        return self._tables.get(name)

    def note(self, what: str, names: Iterable[str] | None) -> None:
        """Note tables of which rows were ``read``, ``changed``, or ``taken`` in the order of their places or times.

        Others are ``filled`` with rows whose order matters only if they are read, or ``rekeyed``: from now on a key
        does not identify one of their rows. None stands for all tables.
        """
        new = set(self._tables if names is None else names) - self._notes[what]
        self._notes[what] |= new
        if new and what == "rekeyed":
            self.parsed.clear()

    def noted(self, what: str) -> set[str]:
        """Return tables that are ``rekeyed``, or whose rows are seen in the order of INSERTs (``ordered``) or any."""
        return set.intersection(*(self._notes[part] for part in _LEARNED[what]))

    @property
    def learned(self) -> frozenset[LearnedFact]:
        """What runs have shown: a word for what, the table of which it is true, and the statement, if it is of one."""
        of_statements = {(*fact, template) for template, group in self.facts.items() for fact in group}
        return frozenset(of_statements.union((what, name, "") for what in _LEARNED for name in self.noted(what)))

    def learn(self, what: str, name: str, template: str = "") -> None:
        """Take over a fact that was learned elsewhere, or that a step has shown of its statement."""
        for part in _LEARNED.get(what, ()):
            self.note(part, {name})
        if what not in _LEARNED:
            self.facts[template].add((what, name))
        if what == "numbers":
            self.shared_sequences |= {name}
            self.parsed.clear()

    def forget_learned(self) -> None:
        """Forget what runs have shown, for a new exploration with other statements."""
        if self._notes["rekeyed"] or self.shared_sequences != self._numbering_several:
            self.parsed.clear()
        self._notes.clear()
        self.facts.clear()
        self.shared_sequences = self._numbering_several


def _table(*row: Any, triggers: TableTriggers) -> TableFacts:
    name, pk, unique, indexes, numbered, deferred, foreign_keys, sequences, listed, special, computes = row
    references: list[list[str]] = json.loads(listed)  # Django has its connections leave JSON as text
    acts = {
        verb
        for _, *actions in references
        for verb, action in zip(("DELETE", "UPDATE"), actions, strict=True)
        if action in ("c", "n", "d")
    }
    return TableFacts(
        name=name,
        pk=pk,
        unique=frozenset(unique),
        indexes=tuple(map(UniqueIndex.parse, json.loads(indexes))),
        numbered=frozenset(numbered),
        deferred=deferred,
        foreign_keys=frozenset(map(ForeignKey.parse, json.loads(foreign_keys))),
        children=frozenset(child for child, *_ in references),
        sequences=frozenset(sequences),
        hidden=frozenset({"INSERT", "UPDATE", "DELETE"} if computes else triggers.writing | acts),
        triggers=triggers,
        special=special,
    )
