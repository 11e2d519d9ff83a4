"""The migration operation for writers outside Django."""

from __future__ import annotations

from typing import Any

from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.models import Model

from django_lockstep.editing.guards import GUARD_PREFIX
from django_lockstep.editing.targets import key_columns, label_of
from django_lockstep.locking.triggers import RowTrigger

__all__ = ["AddEditGuard"]

# The same questions in the same order as in Python: guards first, then who holds it, with the check-outs locked, then
# the clock. 55006 is object_in_use.
_BODY = """
DECLARE
    held record;
    keys text[] := ARRAY['', {keys}];
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION USING ERRCODE = '0A000',
            MESSAGE = 'edit locks are decided at READ COMMITTED, not at ' || current_setting('transaction_isolation');
    END IF;
    PERFORM pg_advisory_xact_lock_shared(guard.key) FROM (
        SELECT hashtextextended('{prefix}{label}' || CASE WHEN k = '' THEN '' ELSE ':' || k END, 0) AS key
        FROM unnest(keys) AS k WHERE k IS NOT NULL GROUP BY 1 ORDER BY 1 OFFSET 0) AS guard;
    FOR held IN
        SELECT c.*, l.status, l.object_pk AS record FROM {locks} l JOIN {check_outs} c ON c.id = l.check_out_id
        WHERE l.model = '{label}' AND l.object_pk = ANY (keys) AND l.status <> 'normal'
        ORDER BY c.id FOR NO KEY UPDATE OF c
    LOOP
        CONTINUE WHEN held.ended_at IS NOT NULL OR held.expires_at <= clock_timestamp();
        CONTINUE WHEN held.status = 'editing' AND EXISTS (
            SELECT FROM unnest(string_to_array(current_setting('{token}', true), ' ')) AS shown
            WHERE encode(sha256(convert_to(shown, 'UTF8')), 'hex') IN (held.digest, held.pass_digest));
        RAISE EXCEPTION USING ERRCODE = '55006',
            MESSAGE = '{label}' || CASE held.record WHEN '' THEN '' ELSE ':' || held.record END
                || ' is checked out until ' || held.expires_at,
            HINT = 'Check it out, and set {token} to its token in this transaction (set_config, local).';
    END LOOP;
    RETURN coalesce(NEW, OLD);
END;
"""


class AddEditGuard(RowTrigger):
    """Refuse every write of the model's rows that somebody else has checked out, whoever sends it, with 55006.

    For PostgreSQL: a BEFORE trigger for each row. A writer outside Django names its check-out by
    ``SELECT set_config('lockstep.edit_token', TOKEN, true)`` in the same transaction; instances of `EditLockedModel`
    and `fence` do it by themselves for who is `writing`, without a token too, for the rows that they are about. The
    migration depends on ``("lockstep_editing", "0001_initial")``. A model that inherits from another table needs a
    guard on each of the two.
    """

    suffix = "edit_guard"
    events = "BEFORE INSERT OR UPDATE OR DELETE"

    def body(self, model: type[Model], schema_editor: BaseDatabaseSchemaEditor) -> str:
        """Look for check-outs of the row's table and of the row, by the keys before and after."""
        from django_lockstep.editing.fences import TOKEN_SETTING
        from django_lockstep.editing.models import CheckOut, EditLock

        quote = schema_editor.connection.ops.quote_name
        columns = [quote(name) for name in key_columns(model)]
        return _BODY.format(
            keys=", ".join(_key(columns, row) for row in ("OLD", "NEW")),
            prefix=GUARD_PREFIX,
            label=label_of(model),
            locks=quote(EditLock._meta.db_table),
            check_outs=quote(CheckOut._meta.db_table),
            token=TOKEN_SETTING,
        )

    def describe(self) -> str:
        """Return what `migrate` prints."""
        return f"Guard {self.model_name} against writes while it is checked out by somebody else"

    @property
    def migration_name_fragment(self) -> str:
        """Return the operation's part of an automatic migration name."""
        return f"{self.model_name.lower()}_edit_guard"


def _key(columns: list[str], row: str) -> Any:
    """Return the SQL of the row's key as `key_text` writes it; OLD and NEW are null where there is none."""
    if len(columns) == 1:
        return f"{row}.{columns[0]}::text"
    parts = ", ".join(f"{row}.{column}::text" for column in columns)
    return f"CASE WHEN {row} IS NULL THEN NULL ELSE json_build_array({parts})::text END"
