"""Fixtures of the projects that are not ours: one wheel, one environment, one database each."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connection
from psycopg import sql

from tests.installed.building import build
from tests.installed.project import Project, make_environment

pytest.register_assert_rewrite("tests.installed.conformance")

Databases = Callable[[str], dict[str, Any]]
Projects = Callable[[str], Project]

_TO_DJANGO = {"host": "HOST", "port": "PORT", "user": "USER", "password": "PASSWORD"}


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a virtual environment into which the built wheel was installed."""
    pytest.importorskip("pip", reason="this environment has no pip to install the wheel with")
    wheel = build(tmp_path_factory.getbasetemp() / "dist").wheel
    return make_environment(tmp_path_factory.mktemp("environment") / "venv", wheel)


@pytest.fixture(scope="session")
def start_project(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Projects:
    """Start a project of this name."""
    return lambda name: Project.start(tmp_path_factory.mktemp("elsewhere") / name, python)


@pytest.fixture(scope="session")
def make_database(django_db_setup: None) -> Iterator[Databases]:
    """Create a database on the test database's server; return it as settings want it. All are dropped at the end."""
    if connection.vendor != "postgresql":
        pytest.skip(f"these projects need PostgreSQL, and the test database is {connection.vendor}")
    server = connection.get_connection_params()
    address = {name: server[name] for name in ("dbname", *_TO_DJANGO) if server.get(name)}
    with ExitStack() as stack:
        yield lambda name: stack.enter_context(_database(address, f"{address['dbname']}_{name}"))


@contextmanager
def _database(address: dict[str, Any], name: str) -> Iterator[dict[str, Any]]:
    with psycopg.connect(**address, autocommit=True) as session:
        quoted = sql.Identifier(name)
        session.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(quoted))
        session.execute(sql.SQL("CREATE DATABASE {}").format(quoted))
        # The project's own tests run in the database that it migrated.
        given = {_TO_DJANGO[key]: value for key, value in address.items() if key in _TO_DJANGO}
        yield {"ENGINE": "django.db.backends.postgresql", "NAME": name, "TEST": {"NAME": name}, **given}
        session.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(quoted))
