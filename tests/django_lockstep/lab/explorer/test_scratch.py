"""Scratch databases: empty, of the project's migrations, made for a run and dropped after it."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from django.db import DatabaseError, connection, connections
from django.db.backends.postgresql.creation import DatabaseCreation

from django_lockstep.lab.explorer import NotExplorable, Scenario, explore
from django_lockstep.lab.explorer.tables.databases import SCRATCH_PREFIX
from django_lockstep.lab.explorer.tables.scratch import _LOCK, _project, scratch_databases
from tests.django_lockstep.lab.explorer import stories
from tests.support.sessions import Session, query
from tests.testapps.shop.models import Seat

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("no_tests")]


def database() -> str:
    return str(query("SELECT current_database()"))


def names(project: str) -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT datname FROM pg_database WHERE starts_with(datname, %s)", [f"{project}_"])
        return sorted(name for (name,) in cursor.fetchall())


def migrations() -> Any:
    return patch.object(DatabaseCreation, "create_test_db", autospec=True, side_effect=made_without_tables)


def made_without_tables(creation: Any, **options: Any) -> None:
    with creation._nodb_cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {creation._get_test_db_name()}")


@pytest.fixture
def project(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """What begins the names of the scratch databases of another settings module."""
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "another.settings")
    yield (project := _project(connection))
    with connection.cursor() as cursor:
        for name in names(project):
            cursor.execute(f"DROP DATABASE {name}")


# What it is


def test_it_is_empty_and_has_the_projects_tables() -> None:
    Seat.objects.create()
    with scratch_databases():
        assert database().startswith(SCRATCH_PREFIX)
        assert not Seat.objects.exists()
        Seat.objects.create(price=7)
    assert not Seat.objects.filter(price=7).exists()


def test_all_threads_of_the_process_are_in_it() -> None:
    seen: list[str] = []

    def look() -> None:
        seen.append(database())
        connection.close()

    with scratch_databases():
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    assert seen[0].startswith(SCRATCH_PREFIX)


def test_the_alias_means_the_projects_database_again_however_the_block_is_left() -> None:
    before = database()
    with suppress(ZeroDivisionError), scratch_databases():
        raise ZeroDivisionError
    assert database() == before


def test_what_others_commit_into_the_projects_tables_meanwhile_is_kept(other: Session) -> None:
    def set_up() -> int:
        other.run(Seat.objects.get_or_create, price=4242)
        return stories.one_seat()

    with scratch_databases():
        assert explore(Scenario(set_up=set_up, actors=[stories.locked] * 2)).verdict == "holds"

    assert Seat.objects.filter(price=4242).exists()


# When it is made and dropped


def test_one_template_is_kept_and_copied(project: str) -> None:
    with migrations() as migrated:
        for _ in range(2):
            with scratch_databases():
                assert len(names(project)) == 2
            assert len(names(project)) == 1
    assert migrated.call_count == 1


def test_a_template_that_somebody_was_killed_dropping_is_made_anew(project: str) -> None:
    with migrations() as migrated:
        for made in (1, 2):
            with scratch_databases():
                assert migrated.call_count == made
            with connection.cursor() as cursor:
                cursor.execute("UPDATE pg_database SET datconnlimit = -2 WHERE datname = %s", names(project))


def test_another_state_of_the_migrations_has_another_template(project: str, settings: Any) -> None:
    kept = []
    with migrations() as migrated:
        for model in ("auth.User", "shop.Seat"):
            settings.AUTH_USER_MODEL = model
            with scratch_databases():
                pass
            kept += names(project)
    assert migrated.call_count == len(set(kept)) == 2


def test_no_template_is_kept_where_migrations_fail(project: str) -> None:
    failing = patch.object(DatabaseCreation, "create_test_db", side_effect=DatabaseError("no such extension"))
    reason = "No scratch database could be created for 'default': no such extension"
    with failing, pytest.raises(NotExplorable, match=reason):
        scratch_databases().__enter__()
    assert not names(project)


def test_what_killed_processes_left_is_dropped_and_what_is_in_use_is_not(project: str, other: Session) -> None:
    left, used = f"{project}_run_left", f"{project}_run_used"
    with connection.cursor() as cursor:
        for name in (left, used):
            cursor.execute(f"CREATE DATABASE {name}")
    with ExitStack() as session:
        other.run(lock, used, session)
        with migrations(), scratch_databases():
            assert used in names(project)
            assert left not in names(project)
        other.run(session.close)


def lock(name: str, session: ExitStack) -> None:
    session.enter_context(connection._nodb_cursor()).execute(_LOCK, [name])


# What is refused


def test_databases_without_a_scratch_database_are_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    values = {
        **connection.settings_dict,
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": tmp_path / "db",
        "OPTIONS": {},
    }
    monkeypatch.setitem(connections.databases, "files", values)
    try:
        with scratch_databases(), pytest.raises(NotExplorable, match=r"no scratch database for 'files' \(sqlite\)"):
            connections["files"].connect()
    finally:
        connections["files"].close()
        del connections["files"]


def test_a_role_that_may_not_make_databases_is_reported_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    poor = f"{connection.settings_dict['NAME']}_poor"
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE ROLE {poor}")
    monkeypatch.setitem(connection.settings_dict["OPTIONS"], "assume_role", poor)
    try:
        with pytest.raises(NotExplorable, match=f"'{poor}' may not create databases.*CREATEDB.*--database ALIAS"):
            scratch_databases().__enter__()
    finally:
        monkeypatch.undo()
        with connection.cursor() as cursor:
            cursor.execute(f"DROP ROLE {poor}")
