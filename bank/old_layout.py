"""Databases that an older layout of this project made: their tables have other names, and nothing renames them."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError
from django.db.backends.base.base import BaseDatabaseWrapper

__all__ = ["OldLayout", "refuse_old_layout"]

# Applied migrations that only the old layout has. Its accounts.0001_initial has the name of today's: migrate would take
# that for done, and stop half way.
_OLD = """
SELECT string_agg(app || '.' || name, ', ' ORDER BY app, name) FROM django_migrations
WHERE app IN ('accounts_lab', 'accounts_leases', 'editing')
    OR (app, name) IN (('accounts', '0002_guards'), ('accounts', '0003_permissions'))
    OR (app, name) = ('accounts_slotted', '0002_guards')
"""

_looked_at: set[str] = set()
"""Aliases of databases."""


class OldLayout(CommandError):
    """The database was made by an older layout; commands show the message without a traceback."""


def refuse_old_layout(connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
    """Raise `OldLayout` where the database has such tables; looks at the first connection of a process alone."""
    if connection.alias in _looked_at or connection.vendor != "postgresql":
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass('django_migrations') IS NOT NULL")
        found = cursor.fetchone()[0] and _value(cursor, _OLD)
        advice = _advice(connection, cursor) if found else ""
    if found:
        connection.close()  # otherwise the caller's next attempt would find it open, and go on
        raise OldLayout(
            f"The database {connection.settings_dict['NAME']!r} has tables of an older layout of this project, which "
            f"cannot be migrated (it applied {found}). {advice}"
        )
    _looked_at.add(connection.alias)


def _advice(connection: BaseDatabaseWrapper, cursor: Any) -> str:
    if connection.settings_dict["ENGINE"] != "bank.embedded":
        return "Let DATABASE_URL name an empty database."
    folder = _value(cursor, "SHOW data_directory")
    return f"Delete the folder {folder}, with all accounts in it, or set BANK_PGDATA to a new folder."


def _value(cursor: Any, sql: str) -> Any:
    cursor.execute(sql)
    return cursor.fetchone()[0]
