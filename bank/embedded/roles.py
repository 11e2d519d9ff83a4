"""The role that applications use: it owns their databases, and is not a superuser.

A superuser may read the server's files and run programs, so that one SQL injection would give access to a shell.
"""

from collections.abc import Mapping

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

APPLICATION_ROLE = "bank"

# Two processes that find the role or a database missing must not both create it.
_LOCK = "SELECT pg_advisory_lock(hashtext('bank.embedded'))"
# CREATEDB is for tests and scratch copies, pg_monitor for the lock report. The race lab sets deadlock_timeout to choose
# the victim of a deadlock, and session_replication_role to restore append-only tables; the owner of a table could drop
# its triggers anyway.
_MAKE_ROLE = sql.SQL(
    "BEGIN; CREATE ROLE {role} LOGIN CREATEDB IN ROLE pg_monitor;"
    " GRANT SET ON PARAMETER deadlock_timeout, session_replication_role TO {role}; COMMIT"
)
_CHANGE_OWNER = sql.SQL("""
    DO $$ DECLARE change text; BEGIN
        FOR change IN
            SELECT format('ALTER %s %s OWNER TO {role}',
                          CASE relkind WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END, oid::regclass)
              FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v')
            UNION ALL
            SELECT format('ALTER ROUTINE %s OWNER TO {role}', oid::regprocedure)
              FROM pg_proc WHERE pronamespace = 'public'::regnamespace
        LOOP EXECUTE change; END LOOP;
        EXECUTE format('ALTER DATABASE %I OWNER TO {role}', current_database());
    END $$
""")


def provide(superuser: Mapping[str, str], database: str | None) -> None:
    """Make sure that the application's role exists, and that a database exists and belongs to it.

    ``superuser`` has the superuser's connection parameters. A database that the superuser owns (in data folders from
    the time when applications connected as superuser) is transferred to the role, with its public schema. Raises
    psycopg.Error where the server does not answer or refuses.
    """
    role = sql.Identifier(APPLICATION_ROLE)
    with psycopg.connect(make_conninfo(**superuser, dbname="postgres"), autocommit=True) as connection:
        connection.execute(_LOCK)
        if not connection.execute("SELECT FROM pg_roles WHERE rolname = %s", [APPLICATION_ROLE]).rowcount:
            connection.execute(_MAKE_ROLE.format(role=role))
        if database is None:
            return
        query = "SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = %s"
        owner = connection.execute(query, [database]).fetchone()
        if owner is None:
            creation = sql.SQL("CREATE DATABASE {} OWNER {}")
            connection.execute(creation.format(sql.Identifier(database), role))
        elif owner[0] == superuser["user"]:
            with psycopg.connect(make_conninfo(**superuser, dbname=database), autocommit=True) as inside:
                inside.execute(_CHANGE_OWNER.format(role=role))
