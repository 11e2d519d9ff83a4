"""Empties the databases after a test that committed.

Django's ``flush`` truncates every table and then makes all content types and permissions anew. That takes longer than
most tests here, since it gives new files to a hundred tables and indexes of which hardly any had a row.
"""

from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper

_KEPT = ("django_content_type", "auth_permission")
"""What ``post_migrate`` makes; it stays unless a test changed it."""
_NEVER = ("django_migrations",)
_LARGE = 1_000_000
"""Bytes of a table above which it is truncated, with all that deleted rows have left in it, also if none is left."""

# A function of the session: one round trip. Most tables have no file with a page in it, and are not opened. Without
# triggers, rows can be deleted in any order, and those of append-only tables at all.
_EMPTIED = """
CREATE OR REPLACE FUNCTION pg_temp.emptied(kept text, large bigint) RETURNS boolean
LANGUAGE plpgsql SET session_replication_role = replica AS $$
DECLARE
    name regclass;
BEGIN
    IF kept <> ({fingerprint}) OR EXISTS (SELECT FROM unnest({tables}) AS t WHERE pg_relation_size(t) > large) THEN
        RETURN false;
    END IF;
    FOR name IN SELECT t FROM unnest({tables}) AS t WHERE pg_relation_size(t) > 0 LOOP
        EXECUTE 'DELETE FROM ' || name;
    END LOOP;
    RETURN true;
END $$
"""
_FINGERPRINT = "SELECT " + " || ".join(
    f"(SELECT coalesce(md5(string_agg(t::text, ';' ORDER BY id)), '') FROM {name} t)" for name in _KEPT
)


class Emptying:
    """Remembers which rows have to be there."""

    def __init__(self) -> None:
        self._kept: dict[str, str] = {}
        self._sessions: dict[str, Any] = {}

    def empty(self, using: str) -> bool:
        """Delete the rows of every table that has some; False, with nothing done, where that takes ``flush``."""
        connection = connections[using]
        if using not in self._kept or connection.in_atomic_block:
            return False
        with connection.cursor() as cursor:
            self._provide(connection, cursor)
            cursor.execute("SELECT pg_temp.emptied(%s, %s)", [self._kept[using], _LARGE])
            return bool(cursor.fetchone()[0])

    def remember(self, using: str) -> None:
        """Note what ``flush`` has left, where it can be done without it."""
        connection = connections[using]
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("SELECT has_parameter_privilege('session_replication_role', 'SET')")
                if cursor.fetchone()[0]:
                    cursor.execute(_FINGERPRINT)
                    self._kept[using] = cursor.fetchone()[0]

    def _provide(self, connection: BaseDatabaseWrapper, cursor: CursorWrapper) -> None:
        """Make the function where this session does not have it yet."""
        if self._sessions.get(connection.alias) is not connection.connection:
            names = set(connection.introspection.django_table_names(include_views=False)).difference(_KEPT, _NEVER)
            literals = ", ".join(f"to_regclass('{connection.ops.quote_name(name)}')" for name in sorted(names))
            tables = f"array_remove(ARRAY[{literals}], NULL)"
            cursor.execute(_EMPTIED.format(fingerprint=_FINGERPRINT, tables=tables))
            self._sessions[connection.alias] = connection.connection
