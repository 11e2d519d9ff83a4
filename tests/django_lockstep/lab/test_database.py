"""What the simulator demands of a database."""

import contextlib
from collections.abc import Iterator

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from pytest_django import Settings

from django_lockstep.lab.simulator.database import end_sessions, environment, require_tables
from django_lockstep.lab.simulator.errors import SimulationError
from tests.support.sessions import Session, query

pytestmark = pytest.mark.django_db(transaction=True)


@contextlib.contextmanager
def last_migration_missing(label: str = "purses") -> Iterator[str]:
    """Take the last migration of the app back for the length of the block."""
    graph = MigrationLoader(connection).graph
    ((app, last),) = graph.leaf_nodes(label)
    before = [name for label, name in graph.forwards_plan((app, last)) if label == app][-2]
    call_command("migrate", app, before, verbosity=0)
    try:
        yield f"{app}.{last}"
    finally:
        call_command("migrate", app, last, verbosity=0)


def test_missing_migrations_are_named(settings: Settings) -> None:
    del settings.LOCKSTEP_LAB_MIGRATES  # nothing is applied unasked
    with last_migration_missing() as name, pytest.raises(SimulationError, match=rf"lacks migrations: {name}\. Run"):
        require_tables("default", ["purses"])


@pytest.mark.parametrize("label", ["purses", "press"])
def test_missing_migrations_are_applied_where_the_settings_allow_it(settings: Settings, label: str) -> None:
    settings.LOCKSTEP_LAB_MIGRATES = True
    with last_migration_missing(label) as name:
        require_tables("default", ["purses"])
        app, _, migration = name.partition(".")
        assert query("SELECT count(*) FROM django_migrations WHERE app = %s AND name = %s", app, migration) == 1


def test_the_environment_names_the_server() -> None:
    values = environment("default")
    version = query("SHOW server_version").partition(" ")[0]
    assert values["database"] == f"PostgreSQL {version}"
    assert values["isolation"] == "read committed"


def test_sessions_are_ended_by_the_beginning_of_their_name(other: Session) -> None:
    other.run(query, "SELECT set_config('application_name', 'ours-1', false)")
    end_sessions("default", ["ours", "nobody"])
    assert query("SELECT count(*) FROM pg_stat_activity WHERE pid = %s", other.pid) == 0


def test_other_sessions_are_left_alone(other: Session) -> None:
    other.run(query, "SELECT set_config('application_name', 'theirs', false)")
    end_sessions("default", ["ours"])
    end_sessions("default", [])
    assert other.run(query, "SELECT pg_backend_pid()") == other.pid
