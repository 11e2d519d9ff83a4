"""Migration operations for ledgers."""

from __future__ import annotations

from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.models import Model

from django_lockstep.locking.triggers import RowTrigger

__all__ = ["AppendOnly"]


class AppendOnly(RowTrigger):
    """Make the database refuse every UPDATE and DELETE of the model's rows (``IntegrityError``, SQLSTATE 23001).

    For PostgreSQL; elsewhere only the model's own refusal holds. TRUNCATE stays possible for the table's owner:
    Django's test runner empties tables with it.
    """

    suffix = "append_only"
    events = "BEFORE UPDATE OR DELETE"

    def body(self, model: type[Model], schema_editor: BaseDatabaseSchemaEditor) -> str:
        """Refuse."""
        return (
            "RAISE EXCEPTION 'rows of % are append-only: % is refused', TG_TABLE_NAME, TG_OP "
            "USING ERRCODE = 'restrict_violation';"
        )

    def describe(self) -> str:
        """Return what `migrate` prints."""
        return f"Make {self.model_name} append-only"

    @property
    def migration_name_fragment(self) -> str:
        """Return the operation's part of an automatic migration name."""
        return f"{self.model_name.lower()}_append_only"
