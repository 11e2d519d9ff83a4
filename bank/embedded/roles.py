"""The role that applications connect as: it owns their databases, and is no superuser.

A superuser may read the server's files and run programs, so that one injected statement would be a shell.
"""

from collections.abc import Mapping

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

APPLICATION_ROLE = "bank"

# Two processes that find the role or a database missing must not both make it.
_ONE_AT_A_TIME = "SELECT pg_advisory_lock(hashtext('bank.embedded'))"
# Databases are for tests and scratch copies. The lock report shows sessions of other roles. The race lab decides
# by deadlock_timeout who loses a deadlock, and puts append-only tables back as a replica does; the owner of a table can
# take its triggers away anyway.
_MAKE_ROLE = sql.SQL(
    "BEGIN; CREATE ROLE {role} LOGIN CREATEDB IN ROLE pg_monitor;"
    " GRANT SET ON PARAMETER deadlock_timeout, session_replication_role TO {role}; COMMIT"
)
_HAND_OVER = sql.SQL("""
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

    ``superuser`` is the address by which the superuser connects. A database that the superuser owns (of a data folder
    made when applications connected as that) is handed over with what is in its public schema. Raises psycopg.Error
    where the server does not answer or refuses.
    """
    role = sql.Identifier(APPLICATION_ROLE)
    with psycopg.connect(make_conninfo(**superuser, dbname="postgres"), autocommit=True) as connection:
        connection.execute(_ONE_AT_A_TIME)
        if not connection.execute("SELECT FROM pg_roles WHERE rolname = %s", [APPLICATION_ROLE]).rowcount:
            connection.execute(_MAKE_ROLE.format(role=role))
        if database is None:
            return
        asked = "SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = %s"
        owner = connection.execute(asked, [database]).fetchone()
        if owner is None:
            made = sql.SQL("CREATE DATABASE {} OWNER {}")
            connection.execute(made.format(sql.Identifier(database), role))
        elif owner[0] == superuser["user"]:
            with psycopg.connect(make_conninfo(**superuser, dbname=database), autocommit=True) as inside:
                inside.execute(_HAND_OVER.format(role=role))
