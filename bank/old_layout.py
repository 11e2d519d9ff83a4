"""Refuses databases of an older layout of this project, whose tables have other names and cannot be migrated."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError
from django.db.backends.base.base import BaseDatabaseWrapper

__all__ = ["OldLayout", "refuse_old_layout"]

# Applied migrations that only the old layout has. Its accounts.0001_initial has the same name as the current one:
# migrate would consider that applied, and fail half-way.
_OLD = """
SELECT string_agg(app || '.' || name, ', ' ORDER BY app, name) FROM django_migrations
WHERE app IN ('accounts_lab', 'accounts_leases', 'editing')
    OR (app, name) IN (('accounts', '0002_guards'), ('accounts', '0003_permissions'))
    OR (app, name) = ('accounts_slotted', '0002_guards')
"""

_checked: set[str] = set()
"""Aliases of the databases that were checked."""


class OldLayout(CommandError):
    """The database has an older layout; a ``CommandError``, which commands show without a traceback."""


def refuse_old_layout(connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
    """Raise `OldLayout` where the database has such tables; checks only the first connection of a process."""
    if connection.alias in _checked or connection.vendor != "postgresql":
        return
    with connection.cursor() as cursor:
        # An empty database has no such table, and a failed SELECT would abort the transaction.
        cursor.execute("SELECT to_regclass('django_migrations') IS NOT NULL")
        found = cursor.fetchone()[0] and _value(cursor, _OLD)
        advice = _advice(connection, cursor) if found else ""
    if found:
        connection.close()  # otherwise the caller's next attempt would use the open connection
        raise OldLayout(
            f"The database {connection.settings_dict['NAME']!r} has tables of an older layout of this project, which "
            f"cannot be migrated (it applied {found}). {advice}"
        )
    _checked.add(connection.alias)


def _advice(connection: BaseDatabaseWrapper, cursor: Any) -> str:
    if connection.settings_dict["ENGINE"] != "bank.embedded":
        return "Set DATABASE_URL to an empty database."
    folder = _value(cursor, "SHOW data_directory")
    return f"Delete the folder {folder}, which contains all accounts, or set BANK_PGDATA to a new folder."


def _value(cursor: Any, sql: str) -> Any:
    cursor.execute(sql)
    return cursor.fetchone()[0]
