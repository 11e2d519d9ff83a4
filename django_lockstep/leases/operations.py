"""Migration operations for parts of the lease's table that Django's models cannot express."""

from __future__ import annotations

from collections.abc import Callable

from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.backends.utils import truncate_name
from django.db.models import Model

from django_lockstep.locking.triggers import TableOperation

FILLFACTOR = 50
"""Percent of a page that INSERT fills: a refresh is a heap-only update if its new row version fits on the page."""

TURN_LOCK = "hashtextextended('lockstep.leases, turn:' || {key}, 0)"
"""SQL of the advisory lock by which the first in the queue keeps newcomers from taking the lease."""

GUARD_LOCK = "hashtextextended('lockstep.leases, under guard:' || {key}, 0)"
"""SQL of the advisory lock that every guard of the key shares.

It excludes nothing: row locks are invisible to other sessions, and this one makes a guard visible.
"""

UNDER_GUARD = f"""({GUARD_LOCK} = ANY (ARRAY(
        SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks
        WHERE locktype = 'advisory' AND objsubid = 1 AND granted AND pid <> pg_backend_pid()
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))))"""
"""SQL for whether another session's transaction guards the key; pg_locks is read once a statement."""

# Checks that the session already has the settings that an operation needs, so that it need not send any: READ
# COMMITTED, because it decides by what is committed at that moment, and a time limit of at most p_limit milliseconds. A
# limit set within a statement applies from the next statement on, so a function can only check. NULL: the caller has
# set them.
_CHECK_SESSION = """
    IF p_limit IS NOT NULL AND NOT (
        current_setting('transaction_isolation') = 'read committed'
        AND extract(epoch FROM current_setting('statement_timeout')::interval) * 1000 BETWEEN 1 AND p_limit
    ) THEN
        RETURN;
    END IF;
"""

# Functions, because their statements are planned once a session, also behind a connection pooler and for clients
# without prepared statements. The prefix p_ keeps parameters apart from columns. The first column of the result is NULL
# where the session's settings did not fit and nothing was done.
#
# An expired lease is locked before it is taken, and skipped where another transaction has locked it: a guard, or
# another claim. A refusal only reads: no row lock, no transaction id, no WAL. Time is clock_timestamp() throughout,
# because now() stands still in a transaction. No row can be deleted between the first statement and the second, because
# it is locked; the loop repeats where a row was inserted or purged between the others.
#
# A claim that sees an expired lease which is then taken before the row is locked has locked another holder's row: no
# refresh, release or guard could pass. The end of the statement releases that lock, but not in a transaction that goes
# on, such as that of the first in the queue (which has no limit): there the end of a subtransaction releases it.
#
# A claim that yields takes no lease while the first in the queue holds the turn lock.
_TAKE = """
            SELECT id INTO free_id FROM {table}
                WHERE key = p_key AND expires_at <= clock_timestamp() FOR UPDATE SKIP LOCKED;
            IF FOUND THEN
                UPDATE {table} AS lease SET token = nextval('{sequence}'), owner = p_owner,
                    data = coalesce(p_data, lease.data), ttl = p_ttl, acquired_at = clock_timestamp(),
                    expires_at = clock_timestamp() + make_interval(secs => p_ttl), released_at = NULL
                    WHERE id = free_id RETURNING true, lease.token, acquired_at, lease.data
                    INTO granted, token, since, data;
                RETURN;
            END IF;
"""
_ACQUIRE = """
CREATE FUNCTION {acquire}(
    p_key text, p_owner text, p_data jsonb, p_ttl double precision, p_yields boolean, p_limit integer,
    OUT granted boolean, OUT token bigint, OUT since timestamptz, OUT owner text, OUT data jsonb,
    OUT released boolean, OUT remaining double precision, OUT under_guard boolean
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    free_id bigint;
    may_take boolean;
BEGIN
    {check_session}
    may_take := NOT p_yields OR pg_try_advisory_xact_lock_shared({turn_lock});
    LOOP
        IF may_take AND p_limit IS NOT NULL THEN
            {take}
        ELSIF may_take AND EXISTS (SELECT FROM {table} WHERE key = p_key AND expires_at <= clock_timestamp()) THEN
            BEGIN
                {take}
                RAISE SQLSTATE 'LE001';
            EXCEPTION WHEN SQLSTATE 'LE001' THEN NULL;
            END;
        END IF;
        SELECT false, lease.token, acquired_at, lease.owner, lease.data, released_at IS NOT NULL,
            extract(epoch FROM expires_at - clock_timestamp())
            INTO granted, token, since, owner, data, released, remaining FROM {table} AS lease WHERE key = p_key;
        granted := false;
        under_guard := remaining <= 0 AND {under_guard};
        EXIT WHEN FOUND OR NOT may_take;
        INSERT INTO {table} AS lease (key, token, owner, data, ttl, acquired_at, expires_at)
            VALUES (p_key, nextval('{sequence}'), p_owner, p_data, p_ttl, clock_timestamp(),
                clock_timestamp() + make_interval(secs => p_ttl))
            ON CONFLICT DO NOTHING RETURNING true, lease.token, acquired_at, lease.data
            INTO granted, token, since, data;
        EXIT WHEN FOUND;
    END LOOP;
END $$
"""
for _name, _sql in (("take", _TAKE), ("turn_lock", TURN_LOCK), ("under_guard", UNDER_GUARD)):
    _ACQUIRE = _ACQUIRE.replace(f"{{{_name}}}", _sql.replace("{key}", "p_key"))

# A release does not wait for its commit, neither on disk nor on replicas: if a crash undoes it, the lease expires by
# itself. After another acquire it cannot be undone, because that commit flushes the log up to it. A lost acquire would
# mean two holders with one token, a lost refresh a holder that wrongly believes it holds the lease: both wait for their
# commits. The setting ends with the transaction.
_RELEASE = """
CREATE FUNCTION {release}(
    p_key text, p_token bigint, p_least double precision, p_limit integer, OUT released boolean
) LANGUAGE plpgsql AS $$
BEGIN
    {check_session}
    PERFORM set_config('synchronous_commit', 'off', true);
    UPDATE {table} SET released_at = clock_timestamp(),
        expires_at = greatest(clock_timestamp(), acquired_at + make_interval(secs => p_least))
        WHERE key = p_key AND token = p_token AND released_at IS NULL;
    released := FOUND;
END $$
"""


class LeaseStorage(TableOperation):
    """Create the sequence of tokens and the functions that acquire and release; leave room in pages for refreshes.

    PostgreSQL only; reversible. The sequence is not owned by the column: ``TRUNCATE ... RESTART IDENTITY``, which
    ``manage.py flush`` sends, would restart an owned one, and tokens would be used twice.
    """

    fragment = "storage"

    def install(self, model: type[Model], schema_editor: BaseDatabaseSchemaEditor) -> None:
        settings = f"ALTER TABLE {{table}} SET (fillfactor = {FILLFACTOR})"
        self._execute(model, schema_editor, "CREATE SEQUENCE {sequence} AS bigint", settings, _ACQUIRE, _RELEASE)

    def remove(self, model: type[Model], schema_editor: BaseDatabaseSchemaEditor) -> None:
        drop = "DROP FUNCTION IF EXISTS {acquire}, {release}"
        self._execute(model, schema_editor, drop, "ALTER TABLE {table} RESET (fillfactor)", "DROP SEQUENCE {sequence}")

    def _execute(self, model: type[Model], schema_editor: BaseDatabaseSchemaEditor, *statements: str) -> None:
        names = quoted_names(model._meta.db_table, schema_editor.connection.ops.quote_name)
        for statement in statements:
            schema_editor.execute(statement.format(check_session=_CHECK_SESSION, **names), params=None)

    def describe(self) -> str:
        return f"Create the token sequence of {self.model_name}, and its functions"


def quoted_names(table: str, quote: Callable[[str], str]) -> dict[str, str]:
    """Return the quoted names of the table, its sequence of tokens, and its functions, by kind."""
    suffixes = {"sequence": "token", "acquire": "acquire", "release": "release"}
    names = {kind: truncate_name(f"{table}_{suffix}", 63) for kind, suffix in suffixes.items()}
    return {kind: quote(name) for kind, name in {"table": table, **names}.items()}
