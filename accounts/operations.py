"""Migration operations for ledgers."""

from __future__ import annotations

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Model

from django_lockstep.locking.triggers import RowTrigger

__all__ = ["AppendOnly"]


class AppendOnly(RowTrigger):
    """Make the database refuse every UPDATE and DELETE of the model's rows (``IntegrityError``, SQLSTATE 23001).

    On PostgreSQL only; on other databases only the model's methods refuse. The table's owner can still TRUNCATE it, as
    Django's test runner does.
    """

    trigger = "accounts_append_only"
    fragment = "append_only"
    events = "BEFORE UPDATE OR DELETE"

    def body(self, model: type[Model], connection: BaseDatabaseWrapper) -> str:
        return (
            "RAISE EXCEPTION 'rows of % are append-only: % is refused', TG_TABLE_NAME, TG_OP "
            "USING ERRCODE = 'restrict_violation';"
        )

    def describe(self) -> str:
        return f"Make {self.model_name} append-only"
