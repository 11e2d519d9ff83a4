"""The migration operations that give the lease's table what Django's models cannot say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db.backends.utils import truncate_name
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState

__all__ = [
    "GUARD_LOCK",
    "INSISTENCE",
    "UNDER_GUARD",
    "LeaseFunctions",
    "LeaseStorage",
    "function_names",
    "quoted_names",
    "sequence_name",
]

FILLFACTOR = 50
"""Percent of a page that INSERT fills. The rest is for refreshes, whose new row version has to find room there."""

INSISTENCE = "hashtextextended('lockstep.leases, at once:' || {key}, 0)"
"""The number of the advisory lock that keeps everybody polite from taking a lease, as SQL."""

GUARD_LOCK = "hashtextextended('lockstep.leases, under guard:' || {key}, 0)"
"""The number of the advisory lock that every guard of the key shares, as SQL.

It keeps nobody out. Row locks are not to be seen by others, and this says that there is one.
"""

UNDER_GUARD = f"""({GUARD_LOCK} = ANY (ARRAY(
        SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks
        WHERE locktype = 'advisory' AND objsubid = 1 AND granted AND pid <> pg_backend_pid()
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))))"""
"""Whether a transaction of another session keeps the key under guard, as SQL; locks are read once a statement."""

# Whether the session's own settings are what a verb needs, so that it need not bring any: READ COMMITTED, because it
# decides by what is committed when it gets there, and a time limit of at most so many milliseconds. A limit that is set
# in a statement counts from the next one on; so a function can only look. NULL: the caller saw to it.
_UNFIT = """
    IF its_limit IS NOT NULL AND NOT (
        current_setting('transaction_isolation') = 'read committed'
        AND extract(epoch FROM current_setting('statement_timeout')::interval) * 1000 BETWEEN 1 AND its_limit
    ) THEN
        RETURN;
    END IF;
"""

# Functions, because their statements are planned once a session, also behind a connection pooler and where the client
# prepares nothing. Their parameters have a prefix to be no column's. The first column is NULL where they did nothing
# because of the session's settings.
#
# An expired lease is locked before it is taken, and skipped where somebody else is at it: its holder under guard, or
# another taker. A refusal reads only: no row lock, no transaction id, no WAL. Time is clock_timestamp() throughout,
# because now() stands still in a transaction. Nobody deletes a row between the first statement and the second, which
# write and read the row that is locked; the loop goes on where a row was inserted or purged between the others.
#
# Who sees an expired lease that is taken before he has locked its row has locked another holder's: no refresh, release
# or guard would pass him. The end of his statement gives that up, but not in a transaction that goes on, such as that
# of the first in the queue (who has no limit): there the end of a subtransaction does.
#
# Who is polite takes no lease while the first in the queue insists on it, with an advisory lock of its own.
_TAKE = """
            SELECT id INTO free_id FROM {table}
                WHERE key = its_key AND expires_at <= clock_timestamp() FOR UPDATE SKIP LOCKED;
            IF FOUND THEN
                UPDATE {table} AS lease SET token = nextval('{sequence}'), owner = its_owner,
                    data = coalesce(its_data, lease.data), ttl = its_ttl, acquired_at = clock_timestamp(),
                    expires_at = clock_timestamp() + make_interval(secs => its_ttl), released_at = NULL
                    WHERE id = free_id RETURNING true, lease.token, acquired_at, lease.data
                    INTO granted, token, since, data;
                RETURN;
            END IF;
"""
_ACQUIRE = """
CREATE FUNCTION {acquire}(
    its_key text, its_owner text, its_data jsonb, its_ttl double precision, is_polite boolean, may_create boolean,
    its_limit integer,
    OUT granted boolean, OUT token bigint, OUT since timestamptz, OUT owner text, OUT data jsonb,
    OUT released boolean, OUT remaining double precision, OUT under_guard boolean
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    free_id bigint;
    may_take boolean;
BEGIN
    {unfit}
    may_take := NOT is_polite OR pg_try_advisory_xact_lock_shared({insistence});
    LOOP
        IF may_take AND its_limit IS NOT NULL THEN
            {take}
        ELSIF may_take AND EXISTS (SELECT FROM {table} WHERE key = its_key AND expires_at <= clock_timestamp()) THEN
            BEGIN
                {take}
                RAISE SQLSTATE 'LE001';
            EXCEPTION WHEN SQLSTATE 'LE001' THEN NULL;
            END;
        END IF;
        SELECT false, lease.token, acquired_at, lease.owner, lease.data, released_at IS NOT NULL,
            extract(epoch FROM expires_at - clock_timestamp())
            INTO granted, token, since, owner, data, released, remaining FROM {table} AS lease WHERE key = its_key;
        granted := false;
        under_guard := remaining <= 0 AND {under_guard};
        EXIT WHEN FOUND OR NOT may_take OR NOT may_create;
        INSERT INTO {table} AS lease (key, token, owner, data, ttl, acquired_at, expires_at)
            VALUES (its_key, nextval('{sequence}'), its_owner, its_data, its_ttl, clock_timestamp(),
                clock_timestamp() + make_interval(secs => its_ttl))
            ON CONFLICT DO NOTHING RETURNING true, lease.token, acquired_at, lease.data
            INTO granted, token, since, data;
        EXIT WHEN FOUND;
    END LOOP;
END $$
"""
for _name, _sql in (("take", _TAKE), ("insistence", INSISTENCE), ("under_guard", UNDER_GUARD)):
    _ACQUIRE = _ACQUIRE.replace(f"{{{_name}}}", _sql.replace("{key}", "its_key"))

# The commit is not waited for, neither on the disk nor on replicas: a release that a crash takes back is a lease that
# expires by itself. Once somebody else acquired it cannot be taken back: that commit flushes all the log before it, the
# release too. An acquire that a crash took back would be two holders with one token; a refresh, a holder who believes
# it holds when it does not. Those are waited for. The setting ends with the transaction.
_RELEASE = """
CREATE FUNCTION {release}(
    its_key text, its_token bigint, its_least double precision, its_limit integer, OUT released boolean
) LANGUAGE plpgsql AS $$
BEGIN
    {unfit}
    PERFORM set_config('synchronous_commit', 'off', true);
    UPDATE {table} SET released_at = clock_timestamp(),
        expires_at = greatest(clock_timestamp(), acquired_at + make_interval(secs => its_least))
        WHERE key = its_key AND token = its_token AND released_at IS NULL;
    released := FOUND;
END $$
"""


class _ForTable(Operation):
    """Does something for the table of a model, on PostgreSQL only."""

    reversible = True

    def __init__(self, model_name: str) -> None:
        self.model_name = model_name

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        """Change nothing: models do not know of it."""

    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        """Make it."""
        self._execute(self._making, app_label, schema_editor, to_state)

    def database_backwards(
        self, app_label: str, schema_editor: Any, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        """Drop it."""
        self._execute(self._dropping, app_label, schema_editor, from_state)

    _making: tuple[str, ...]
    _dropping: tuple[str, ...]

    def _execute(self, statements: tuple[str, ...], app_label: str, schema_editor: Any, state: ProjectState) -> None:
        model = state.apps.get_model(app_label, self.model_name)
        connection = schema_editor.connection
        if self.allow_migrate_model(connection.alias, model) and connection.vendor == "postgresql":
            names = quoted_names(model._meta.db_table, connection.ops.quote_name)
            for statement in statements:
                schema_editor.execute(statement.format(unfit=_UNFIT, **names), params=None)


class LeaseStorage(_ForTable):
    """Make the sequence of tokens, and leave room in the table's pages for refreshes.

    PostgreSQL only; reversible. The sequence belongs to nobody: one that the column owned would begin again with
    ``TRUNCATE ... RESTART IDENTITY``, which is what ``manage.py flush`` sends, and tokens would return.
    """

    _making = ("CREATE SEQUENCE {sequence} AS bigint", f"ALTER TABLE {{table}} SET (fillfactor = {FILLFACTOR})")
    _dropping = ("ALTER TABLE {table} RESET (fillfactor)", "DROP SEQUENCE {sequence}")

    def describe(self) -> str:
        """Return what `migrate` prints."""
        return f"Make the tokens of {self.model_name}"

    @property
    def migration_name_fragment(self) -> str:
        """Return the operation's part of an automatic migration name."""
        return f"{self.model_name.lower()}_storage"


class LeaseFunctions(_ForTable):
    """Make the functions that acquire and release, in the place of older ones. PostgreSQL only; reversible."""

    _dropping = ("DROP FUNCTION IF EXISTS {acquire}", "DROP FUNCTION IF EXISTS {release}")
    _making = (*_dropping, _ACQUIRE, _RELEASE)

    def describe(self) -> str:
        """Return what `migrate` prints."""
        return f"Make the functions that acquire and release a {self.model_name}"

    @property
    def migration_name_fragment(self) -> str:
        """Return the operation's part of an automatic migration name."""
        return f"{self.model_name.lower()}_functions"


def quoted_names(table: str, quote: Callable[[str], str]) -> dict[str, str]:
    """Return what is in the database for the table, and the table itself, quoted, by what each is for."""
    names = {"table": table, "sequence": sequence_name(table)} | function_names(table)
    return {kind: quote(name) for kind, name in names.items()}


def sequence_name(table: str) -> str:
    """Return the unquoted name of the sequence that gives the table its tokens."""
    return truncate_name(f"{table}_token", 63)


def function_names(table: str) -> dict[str, str]:
    """Return the unquoted names of the functions that ``acquire`` and ``release``."""
    return {verb: truncate_name(f"{table}_{verb}", 63) for verb in ("acquire", "release")}
