"""What an application may do on the embedded server, and what it may not."""

from pathlib import Path

import psycopg
import pytest

from tests.bank.processes import User, postmaster, socket_of
from tests.support.processes import run


def superuser(pgdata: Path, database: str = "postgres") -> psycopg.Connection:
    """Connect as the server's superuser."""
    return psycopg.connect(host=str(socket_of(pgdata)), user="postgres", dbname=database, autocommit=True)


@pytest.mark.parametrize(
    "statement",
    [
        "COPY (SELECT 1) TO PROGRAM 'true'",
        "SELECT pg_read_binary_file('/proc/self/environ')",
        "SELECT pg_read_file('postgresql.conf')",
        "ALTER SYSTEM SET fsync = off",
    ],
)
def test_an_injected_statement_reaches_neither_files_nor_programs(pgdata: Path, statement: str) -> None:
    with User(pgdata) as user:
        assert "permission denied" in user.error(statement)


def test_the_application_owns_its_database_and_may_make_another(pgdata: Path) -> None:
    with User(pgdata) as user:
        user.sql("CREATE TABLE mine ()")
        user.sql("CREATE DATABASE mine_too")
        user.sql("DROP DATABASE mine_too")


def test_the_server_keeps_no_secret_of_the_application(pgdata: Path) -> None:
    with User(pgdata, DJANGO_SECRET_KEY="not-to-be-read") as user:
        user.sql("SELECT 1")
        assert "DJANGO_SECRET_KEY" not in Path(f"/proc/{postmaster(pgdata)}/environ").read_text()


def test_the_application_may_race_its_own_append_only_tables(pgdata: Path) -> None:
    own = {"BANK_PGDATA": str(pgdata), "DATABASE_URL": "", "DJANGO_SETTINGS_MODULE": "bank.settings"}
    explored = run("manage.py", "explore", "lost-update:naive", **own)
    assert explored.returncode == 0, explored.stderr
    assert "lost update: A wrote balance" in explored.stdout


def test_what_the_superuser_owned_is_handed_over_whole(pgdata: Path) -> None:
    with User(pgdata) as user:
        user.sql("SELECT 1")
        with superuser(pgdata, "bank") as connection:
            connection.execute("ALTER DATABASE bank OWNER TO postgres")
            connection.execute("CREATE TABLE old (id serial PRIMARY KEY); CREATE VIEW seen AS SELECT id FROM old")
            connection.execute("CREATE FUNCTION old() RETURNS int RETURN 1")
        with User(pgdata) as next_user:
            next_user.sql("ALTER TABLE old ADD note text")
            next_user.sql("ALTER VIEW seen RENAME TO looked_at")
            next_user.sql("DROP FUNCTION old()")
            assert next_user.sql("INSERT INTO old DEFAULT VALUES RETURNING id") == "1"


def test_no_session_waits_or_idles_for_ever(pgdata: Path) -> None:
    with User(pgdata) as user:
        shown = [user.sql(f"SHOW {name}") for name in ("lock_timeout", "statement_timeout")]
        assert [*shown, user.sql("SHOW idle_in_transaction_session_timeout")] == ["30s", "5min", "5min"]
