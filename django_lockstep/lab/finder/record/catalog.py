"""Tables as the server's catalog has them, so that a result's columns can be led back to them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.apps import apps
from psycopg.pq import ExecStatus, TransactionStatus

from django_lockstep.lab.finder.record.recording import ForeignKey, Table, UniqueIndex

__all__ = ["ServerTable", "TableCatalog"]

# Column numbers stand in the stored trees of an index's expressions and of its condition.
_NUMBERS = r"SELECT found[1]::int FROM regexp_matches({}::text, ':varattno (\d+)', 'g') AS found"
_NAMED = "SELECT DISTINCT a.attname FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum IN ({})"
_KEYS = "SELECT k.n FROM unnest(i.indkey) WITH ORDINALITY k (n, place) WHERE k.place <= i.indnkeyatts"
_TABLES = f"""
SELECT coalesce(jsonb_agg(jsonb_build_object(
    'oid', c.oid::bigint,
    'name', CASE WHEN pg_table_is_visible(c.oid) THEN c.relname ELSE format('%s.%s', n.nspname, c.relname) END,
    'columns', (SELECT jsonb_object_agg(a.attnum, jsonb_build_array(a.attname, a.atttypid::regtype::text))
                FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
    'key', ARRAY(SELECT a.attname FROM pg_index i, unnest(i.indkey) WITH ORDINALITY k (n, place)
                 JOIN pg_attribute a ON a.attnum = k.n
                 WHERE i.indrelid = c.oid AND i.indisprimary AND a.attrelid = c.oid ORDER BY k.place),
    'unique', (SELECT coalesce(jsonb_agg(jsonb_build_array(
                   ARRAY({_NAMED.format(f"{_KEYS} UNION {_NUMBERS.format('i.indexprs')}")}),
                   ARRAY({_NAMED.format(_NUMBERS.format("i.indpred"))}))), '[]')
               FROM pg_index i WHERE i.indrelid = c.oid AND (i.indisunique OR i.indisexclusion) AND i.indisvalid),
    'foreign', (SELECT coalesce(jsonb_agg(jsonb_build_array(a.attname, f.confrelid::bigint)), '[]')
                FROM pg_constraint f JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = f.conkey[1]
                WHERE f.conrelid = c.oid AND f.contype = 'f' AND cardinality(f.conkey) = 1)
)), '[]')::text
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTable:
    """A table with the numbers that the driver knows its columns by."""

    table: Table
    columns: Mapping[int, str]


class TableCatalog:
    """The tables of one database, read when an unknown one is met: tests create tables."""

    def __init__(self, on_loaded: Callable[[list[Table]], None]) -> None:
        """Call ``on_loaded`` with all tables whenever they were read."""
        self._by_oid: dict[int, ServerTable | None] = {}
        self._on_loaded = on_loaded

    def get(self, oid: int, driver: Any) -> ServerTable | None:
        """Return the table; None for one of the server's own, and where the catalog cannot be read now."""
        if oid not in self._by_oid and not self._load(driver):
            return None
        # Not there although the catalog was read: one of the server's own. Noted, or each row would have it read again.
        return self._by_oid.setdefault(oid, None)

    def ensure_loaded(self, driver: Any) -> None:
        """Read the catalog unless that was done: a unit may write without reading anything."""
        if not self._by_oid:
            self._load(driver)

    def _load(self, driver: Any) -> bool:
        # Past Django's and the driver's cursors, so that nobody who counts statements counts this one, and never where
        # it would fail: in an aborted transaction, or amid a pipeline.
        connection = driver.pgconn
        if connection.pipeline_status or connection.transaction_status not in _USABLE:
            return False
        result = connection.exec_(_TABLES.encode())
        if result.status != ExecStatus.TUPLES_OK:
            return False
        listed = json.loads(result.get_value(0, 0))
        names = {each["oid"]: each["name"] for each in listed}
        # A proxy has the table of its model, which is the one to name.
        models = {model._meta.db_table: model for model in apps.get_models() if not model._meta.proxy}
        self._by_oid |= {each["oid"]: _server_table(each, names, models.get(each["name"])) for each in listed}
        self._on_loaded([known.table for known in self._by_oid.values() if known is not None])
        return True


_USABLE = frozenset({TransactionStatus.IDLE, TransactionStatus.INTRANS})


def _server_table(listed: dict[str, Any], names: Mapping[int, str], model: Any) -> ServerTable:
    columns = {int(number): name for number, (name, _) in (listed["columns"] or {}).items()}
    foreign = {column: names[oid] for column, oid in listed["foreign"] if oid in names}
    table = Table(
        name=listed["name"],
        model=model._meta.label if model else "",
        key=tuple(listed["key"]),
        types=dict((listed["columns"] or {}).values()),
        unique=tuple(
            UniqueIndex(columns=tuple(of_key), predicate=tuple(of_condition))
            for of_key, of_condition in listed["unique"]
        ),
        foreign_keys=tuple(
            ForeignKey(column=column, table=target) for column, target in {**_unchecked(model), **foreign}.items()
        ),
    )
    return ServerTable(table=table, columns=columns)


def _unchecked(model: Any) -> dict[str, str]:
    """Return the tables that a model refers to, which the server need not know of: ``db_constraint=False``."""
    fields = model._meta.local_concrete_fields if model else ()
    return {
        field.column: field.related_model._meta.db_table for field in fields if field.many_to_one or field.one_to_one
    }
