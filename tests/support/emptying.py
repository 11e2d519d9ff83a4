"""Empties the databases after a test that committed.

Django's ``flush`` truncates every table and then makes all content types and permissions anew. That takes longer than
most tests here, since it gives new files to a hundred tables and indexes of which hardly any had a row.
"""

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper

__all__ = ["Emptying"]

_KEPT = ("django_content_type", "auth_permission")
"""What ``post_migrate`` makes; it stays unless a test changed it."""
_NEVER = ("django_migrations",)
_LARGE = 1_000_000
"""Bytes of a table above which it is truncated, with all that deleted rows have left in it, also if none is left."""


class Emptying:
    """Remembers which rows have to be there."""

    def __init__(self) -> None:
        self._kept: dict[str, list[object]] = {}

    def empty(self, using: str) -> bool:
        """Delete the rows of every table that has some; False, with nothing done, where that takes ``flush``."""
        connection = connections[using]
        if using not in self._kept or connection.in_atomic_block:
            return False
        with connection.cursor() as cursor:
            return _fingerprint(cursor) == self._kept[using] and _deleted(connection, cursor)

    def remember(self, using: str) -> None:
        """Note what ``flush`` has left, where it can be done without it."""
        connection = connections[using]
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                if _may_skip_triggers(cursor):
                    self._kept[using] = _fingerprint(cursor)


def _fingerprint(cursor: CursorWrapper) -> list[object]:
    rows = " UNION ALL ".join(f"SELECT md5(string_agg(t::text, ';' ORDER BY id)) FROM {name} t" for name in _KEPT)
    cursor.execute(rows)
    return list(cursor.fetchall())


def _may_skip_triggers(cursor: CursorWrapper) -> bool:
    """Whether rows can be deleted in any order, and those of append-only tables at all."""
    cursor.execute("SELECT has_parameter_privilege('session_replication_role', 'SET')")
    return bool(cursor.fetchone()[0])


def _deleted(connection: BaseDatabaseWrapper, cursor: CursorWrapper) -> bool:
    names = set(connection.introspection.django_table_names(only_existing=True, include_views=False))
    tables = [connection.ops.quote_name(name) for name in sorted(names.difference(_KEPT, _NEVER))]
    sizes = (
        f"SELECT '{table}', pg_relation_size('{table}') "
        f"WHERE EXISTS (SELECT FROM {table}) OR pg_relation_size('{table}') > {_LARGE}"
        for table in tables
    )
    cursor.execute(" UNION ALL ".join(sizes))
    full = dict(cursor.fetchall())
    if any(size > _LARGE for size in full.values()):
        return False
    if full:
        deletions = "; ".join(f"DELETE FROM {table}" for table in full)
        cursor.execute(f"BEGIN; SET LOCAL session_replication_role = replica; {deletions}; COMMIT")
    return True
