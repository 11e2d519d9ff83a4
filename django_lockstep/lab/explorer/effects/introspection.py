"""Reads from the server's catalog what writing a table may do beyond what the statement says.

What expressions call is read from their stored trees, not from text: defaults, generated columns, CHECK constraints,
indexes, policies, domains and WHEN clauses of triggers. A function is harmless if it only computes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from django_lockstep.lab.explorer.effects.plpgsql import Body, called_names, read_body

__all__ = ["Facts", "read_facts"]

_HARMLESS = """(CASE WHEN p.pronamespace = 'pg_catalog'::regnamespace
    THEN (p.provolatile <> 'v' AND p.proname !~ '_to_xml|snapshot|xact|^txid_|^pg_stat_')
        OR p.proname IN ('clock_timestamp', 'gen_random_uuid', 'random', 'random_normal', 'timeofday', 'uuidv4',
                         'uuidv7', 'suppress_redundant_updates_trigger', 'tsvector_update_trigger',
                         'tsvector_update_trigger_column')
    ELSE (p.provolatile = 'i' OR p.proname ~ '^uuid_generate_v')
        AND (p.prolang = (SELECT oid FROM pg_language WHERE lanname = 'c') OR EXISTS (
             SELECT FROM pg_depend x WHERE x.classid = 'pg_proc'::regclass AND x.objid = p.oid AND x.deptype = 'e'))
END)"""
"""Functions of extensions count if they are immutable; a project's own may be declared so wrongly."""
_OWN_FUNCTIONS = f"""
SELECT DISTINCT p.proname FROM pg_proc p
WHERE p.pronamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace) AND NOT {_HARMLESS}
"""
_HARMFUL = f"SELECT p.proname FROM pg_proc p WHERE p.proname = ANY (%s) AND NOT {_HARMLESS}"
_NAME = "CASE WHEN pg_table_is_visible(c.oid) THEN c.relname::text ELSE c.oid::regclass::text END"
"""The table's name, with its schema only where it needs one."""
_OURS = "c.relnamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)"
_CALLS = rf"""
WITH RECURSIVE domains (type, source, tree, classid, objid) AS (
    SELECT contypid, 'domain ' || contypid::regtype, conbin::text, 'pg_constraint'::regclass, oid
    FROM pg_constraint WHERE contypid <> 0 AND connamespace <> 'information_schema'::regnamespace
    UNION SELECT oid, 'domain ' || oid::regtype, typdefaultbin::text, 'pg_type'::regclass, oid
    FROM pg_type WHERE typdefaultbin IS NOT NULL AND typnamespace <> 'information_schema'::regnamespace
    UNION SELECT t.oid, d.source, d.tree, d.classid, d.objid FROM domains d JOIN pg_type t
    ON d.type IN (t.typbasetype, t.typelem)
    OR EXISTS (SELECT FROM pg_attribute a WHERE t.typrelid <> 0 AND a.attrelid = t.typrelid AND a.atttypid = d.type)
), expressions (relid, source, verbs, tree, classid, objid) AS (
    SELECT adrelid, CASE attgenerated WHEN '' THEN 'default of ' ELSE 'generated column ' END || attname,
           '{{INSERT,UPDATE}}'::text[], adbin::text, 'pg_attrdef'::regclass, d.oid
    FROM pg_attrdef d JOIN pg_attribute a ON a.attrelid = adrelid AND a.attnum = adnum
    UNION ALL SELECT conrelid, 'constraint ' || conname, '{{INSERT,UPDATE}}', conbin::text, 'pg_constraint'::regclass,
           oid FROM pg_constraint WHERE contype = 'c' AND conrelid <> 0
    UNION ALL SELECT indrelid, 'index ' || indexrelid::regclass, '{{INSERT,UPDATE}}',
           concat(indexprs::text, indpred::text), 'pg_class'::regclass, indexrelid
    FROM pg_index WHERE indexprs IS NOT NULL OR indpred IS NOT NULL
    UNION ALL SELECT polrelid, 'policy ' || polname, '{{SELECT,INSERT,UPDATE,DELETE}}',
           concat(polqual::text, polwithcheck::text), 'pg_policy'::regclass, oid FROM pg_policy
    UNION ALL SELECT tgrelid, 'trigger ' || tgname, '{{INSERT,UPDATE,DELETE}}', tgqual::text, 0::oid, 0::oid
    FROM pg_trigger WHERE NOT tgisinternal AND tgenabled <> 'D' AND tgqual IS NOT NULL
    UNION ALL SELECT attrelid, d.source, '{{INSERT,UPDATE}}', d.tree, d.classid, d.objid
    FROM domains d JOIN pg_attribute a ON a.atttypid = d.type AND a.attnum > 0
)
SELECT {_NAME}, e.source, e.verbs, p.proname FROM expressions e JOIN pg_class c ON c.oid = e.relid,
LATERAL (
    SELECT found[1]::oid FROM regexp_matches(tree, ':(?:op)?funcid (\d+)', 'g') AS found
    UNION SELECT refobjid FROM pg_depend d
    WHERE (d.classid, d.objid, d.refclassid) = (e.classid, e.objid, 'pg_proc'::regclass)
    UNION SELECT oprcode FROM pg_depend d JOIN pg_operator o ON o.oid = d.refobjid
    WHERE (d.classid, d.objid, d.refclassid) = (e.classid, e.objid, 'pg_operator'::regclass)
) AS called (oid), LATERAL (SELECT * FROM pg_proc WHERE pg_proc.oid = called.oid OFFSET 0) AS p
WHERE {_OURS} AND NOT {_HARMLESS} AND NOT (p.proname = 'nextval' AND e.classid = 'pg_attrdef'::regclass AND EXISTS (
    SELECT FROM pg_depend d JOIN pg_class s ON s.oid = d.refobjid AND s.relkind = 'S'
    WHERE d.classid = e.classid AND d.objid = e.objid AND d.refclassid = 'pg_class'::regclass))
"""
"""A default that computes a sequence's name has no dependency on it in the catalog: it counts as a call of
nextval()."""
_TRIGGERS = f"""
SELECT {_NAME}, t.tgname, ARRAY(SELECT verb FROM (VALUES (4, 'INSERT'), (8, 'DELETE'), (16, 'UPDATE')) v (bit, verb)
                                WHERE t.tgtype & bit <> 0), l.lanname, p.prosrc, {_HARMLESS}
FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_proc p ON p.oid = t.tgfoid
JOIN pg_language l ON l.oid = p.prolang
WHERE NOT t.tgisinternal AND t.tgenabled <> 'D' AND {_OURS}
"""
_SEQUENCES = f"""
SELECT {_NAME}, s.oid::regclass::text FROM pg_depend d JOIN pg_class s ON s.oid = d.refobjid AND s.relkind = 'S'
JOIN pg_attrdef a ON a.oid = d.objid JOIN pg_class c ON c.oid = a.adrelid
WHERE d.classid = 'pg_attrdef'::regclass AND d.refclassid = 'pg_class'::regclass
UNION SELECT {_NAME}, s.oid::regclass::text FROM pg_depend d JOIN pg_class s ON s.oid = d.objid AND s.relkind = 'S'
JOIN pg_class c ON c.oid = d.refobjid
WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass AND d.deptype IN ('a', 'i')
"""
_ALL_SEQUENCES = f"SELECT c.oid::regclass::text FROM pg_class c WHERE c.relkind = 'S' AND {_OURS}"


class Facts:
    """What the catalog says about all tables, by table name."""

    def __init__(self) -> None:
        self.own_functions: frozenset[str] = frozenset()
        """Names of functions of the database's own that may do anything."""
        self.opaque: defaultdict[str, defaultdict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        """Sentences on what else a write may do, by table and verb."""
        self.assigned: defaultdict[str, set[str]] = defaultdict(set)
        """Columns that triggers set."""
        self.sequences: defaultdict[str, set[str]] = defaultdict(set)
        """Sequences that number the table's rows."""
        self.all_sequences: frozenset[str] = frozenset()
        """All sequences, also those that number no table."""

    def note_opaque(self, table: str, verbs: Collection[str], *, sentence: str) -> None:
        """Note that statements of these verbs on the table may do anything, and why."""
        for verb in verbs:
            self.opaque[table][verb].add(f"table {table}: its {sentence}")

    def note_body(self, table: str, name: str, *, verbs: Collection[str], body: Body) -> None:
        """Note what a trigger of the table does."""
        self.assigned[table] |= body.assigned
        if body.does:
            self.note_opaque(table, verbs, sentence=f"trigger {name} {body.does}")


def read_facts(cursor: Any) -> Facts:
    facts = Facts()
    facts.own_functions = frozenset(name for (name,) in _rows(cursor, _OWN_FUNCTIONS))
    for table, source, verbs, function in _rows(cursor, _CALLS):
        facts.note_opaque(table, verbs, sentence=f"{source} calls {function}()")
    _read_triggers(facts, cursor)
    for table, sequence in _rows(cursor, _SEQUENCES):
        facts.sequences[table].add(sequence)
    facts.all_sequences = frozenset(sequence for (sequence,) in _rows(cursor, _ALL_SEQUENCES))
    return facts


def _read_triggers(facts: Facts, cursor: Any) -> None:
    triggers = [(each, source) for *each, source, harmless in _rows(cursor, _TRIGGERS) if not harmless]
    called = sorted({name for _, source in triggers for name in called_names(source)})
    # nextval() outside of defaults may number the rows of another table.
    harmful = {name for (name,) in _rows(cursor, _HARMFUL, [called])} | {"nextval"} if called else set()
    for (table, name, verbs, language), source in triggers:
        plain = language == "plpgsql"
        body = read_body(source, harmful=harmful) if plain else Body(does=f"is written in {language}")
        facts.note_body(table, name, verbs=verbs, body=body)


def _rows(cursor: Any, sql: str, params: Sequence[Any] | None = None) -> Iterator[Any]:
    cursor.execute(sql, params)
    yield from cursor.fetchall()
