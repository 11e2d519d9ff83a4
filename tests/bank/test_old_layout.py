"""A data folder that an older layout of this project made is refused in words that say what to do."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bank.processes import ROOT, User, data_of, environment

OLD = """
CREATE TABLE IF NOT EXISTS django_migrations (
    id bigserial PRIMARY KEY, app varchar(255), name varchar(255), applied timestamptz DEFAULT now()
);
TRUNCATE django_migrations;
INSERT INTO django_migrations (app, name) VALUES ('auth', '0001_initial'), ('accounts', '0001_initial'),
"""
ROWS = ["('accounts_leases', '0001_initial')", "('editing', '0001_initial')", "('accounts', '0002_guards')"]
COMMANDS = [["migrate"], ["simulate"], ["runserver", "--noreload", "127.0.0.1:0"]]


@pytest.fixture(autouse=True)
def _others_find_no_tables(pgdata: Path) -> Iterator[None]:
    yield
    run(pgdata, "DROP TABLE django_migrations")


@pytest.fixture
def old_pgdata(pgdata: Path) -> Path:
    run(pgdata, OLD + ", ".join(ROWS))
    return pgdata


def run(pgdata: Path, statement: str) -> None:
    with User(pgdata) as user:
        user.sql(statement)
        user.end()


def manage(pgdata: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "manage.py", *arguments]
    env = environment(BANK_PGDATA=str(pgdata))
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=200, check=False)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_every_command_says_what_to_do(old_pgdata: Path, command: list[str]) -> None:
    done = manage(old_pgdata, *command)
    assert done.returncode == 1
    assert "has tables of an older layout of this project" in done.stderr
    assert "accounts.0002_guards, accounts_leases.0001_initial, editing.0001_initial" in done.stderr
    assert f"Delete the folder {data_of(old_pgdata)}" in done.stderr
    assert "BANK_PGDATA" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("row", ROWS)
def test_one_migration_of_the_old_layout_is_enough(pgdata: Path, row: str) -> None:
    run(pgdata, OLD + row)
    assert "older layout" in manage(pgdata, "showmigrations").stderr


def test_other_migrations_are_no_reason(pgdata: Path) -> None:
    run(pgdata, OLD + "('accounts', '0002_more')")
    done = manage(pgdata, "showmigrations", "accounts")
    assert (done.returncode, done.stderr) == (0, "")
