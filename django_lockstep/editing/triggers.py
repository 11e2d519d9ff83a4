"""The migration operation that makes the database check edit locks, also for writers outside Django."""

from __future__ import annotations

from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Model

from django_lockstep.editing.advisory import LOCK_PREFIX
from django_lockstep.editing.targets import label_of
from django_lockstep.locking.triggers import RowTrigger

# The same steps in the same order as write_checks.py: advisory locks first, then the edit locks with their check-outs
# locked, then the clock, so that a concurrent extension or end is seen. 55006 is object_in_use.
_BODY = """ DECLARE held record; keys text[] := ARRAY['', {keys}]; BEGIN IF current_setting('transaction_isolation') <>
'read committed' THEN RAISE EXCEPTION USING ERRCODE = '0A000', MESSAGE = 'edit locks need READ COMMITTED, not ' ||
current_setting('transaction_isolation'); END IF; PERFORM pg_advisory_xact_lock_shared(locks.key) FROM ( SELECT
hashtextextended('{prefix}{label}' || CASE WHEN k = '' THEN '' ELSE ':' || k END, 0) AS key FROM unnest(keys) AS k WHERE
k IS NOT NULL GROUP BY 1 ORDER BY 1 OFFSET 0) AS locks; FOR held IN SELECT c.*, l.status, l.object_pk AS record FROM
{locks} l JOIN {check_outs} c ON c.id = l.check_out_id WHERE l.model = '{label}' AND l.object_pk = ANY (keys) AND
l.status <> 'normal' ORDER BY c.id FOR NO KEY UPDATE OF c LOOP CONTINUE WHEN held.ended_at IS NOT NULL OR
held.expires_at <= clock_timestamp(); CONTINUE WHEN held.status = 'editing' AND EXISTS ( SELECT FROM
unnest(string_to_array(current_setting('{token}', true), ' ')) AS shown WHERE encode(sha256(convert_to(shown, 'UTF8')),
'hex') IN (held.digest, held.pass_digest)); RAISE EXCEPTION USING ERRCODE = '55006', MESSAGE = '{label}' || CASE
held.record WHEN '' THEN '' ELSE ':' || held.record END || ' is checked out until ' || held.expires_at, HINT = 'Check it
out, and set {token} to its token in this transaction (set_config, local).'; END LOOP; RETURN coalesce(NEW, OLD); END;
"""


class AddEditGuard(RowTrigger):
    """Refuse every write of rows that another user has checked out, from any program, with SQLSTATE 55006.

    For PostgreSQL: a BEFORE trigger for each row. A writer outside Django passes its token with ``SELECT
    set_config('lockstep.edit_token', TOKEN, true)`` in the same transaction; instances of `EditLockedModel` and
    `require_editable` do so for the writer named by `writing`, also without a token, for the rows that they check. The
    migration depends on ``("lockstep_editing", "0001_initial")``. A model that inherits from another table needs a
    guard on each of the two.
    """

    trigger = "lockstep_edit_guard"
    fragment = "edit_guard"
    events = "BEFORE INSERT OR UPDATE OR DELETE"

    def body(self, model: type[Model], connection: BaseDatabaseWrapper) -> str:
        """Check the locks of the table and of the row, by its keys before and after the write."""
        from django_lockstep.editing.models import CheckOut, EditLock
        from django_lockstep.editing.write_checks import TOKEN_SETTING

        quote = connection.ops.quote_name
        columns = [quote(str(field.column)) for field in model._meta.pk_fields]
        return _BODY.format(
            keys=", ".join(_key(columns, row) for row in ("OLD", "NEW")),
            prefix=LOCK_PREFIX,
            label=label_of(model),
            locks=quote(EditLock._meta.db_table),
            check_outs=quote(CheckOut._meta.db_table),
            token=TOKEN_SETTING,
        )

    def describe(self) -> str:
        return f"Guard {self.model_name} against writes while another user has checked it out"


def _key(columns: list[str], row: str) -> Any:
    """Return the SQL of the row's key in the form of `key_text`; OLD and NEW are null where they do not exist."""
    if len(columns) == 1:
        return f"{row}.{columns[0]}::text"
    parts = ", ".join(f"{row}.{column}::text" for column in columns)
    return f"CASE WHEN {row} IS NULL THEN NULL ELSE json_build_array({parts})::text END"
