"""Fixtures of the projects that are not ours: an environment for each set of wheels, a database for each project."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import psycopg
import pytest
from django.db import connection
from psycopg import sql

from django_lockstep.lab.explorer.tables.databases import SCRATCH_PREFIX
from tests.installed.building import SOURCES, build, make_once
from tests.installed.project import Project, make_environment

pytest.register_assert_rewrite("tests.installed.conformance")

Databases = Callable[[str], dict[str, Any]]
Projects = Callable[[str], Project]

_TO_DJANGO = {"host": "HOST", "port": "PORT", "user": "USER", "password": "PASSWORD"}


def _starter(factory: pytest.TempPathFactory, *distributions: str) -> Projects:
    """Return what starts projects in an environment of their own, which has these distributions of ours."""
    pytest.importorskip("pip", reason="this environment has no pip to install the wheels with")
    wheels = [build(name, factory).wheel for name in distributions]
    folder = make_once(factory, "-".join(["with", *distributions]), lambda folder: make_environment(folder, *wheels))
    python = folder / "bin" / "python"
    return lambda name: Project.start(factory.mktemp("projects") / name, python)


@pytest.fixture(scope="session")
def start_project(tmp_path_factory: pytest.TempPathFactory) -> Projects:
    """Start a project of this name, as in production: with the library alone."""
    return _starter(tmp_path_factory, "django-lockstep")


@pytest.fixture(scope="session")
def start_project_with_lab(tmp_path_factory: pytest.TempPathFactory) -> Projects:
    """Start a project of this name, as in development: with the library and the race lab."""
    return _starter(tmp_path_factory, "django-lockstep", "django-lockstep-lab")


@pytest.fixture(scope="session")
def start_project_without_lab(tmp_path_factory: pytest.TempPathFactory) -> Projects:
    """Start a project of this name, which has the showcase in production."""
    return _starter(tmp_path_factory, "django-lockstep", "django-lockstep-accounts")


@pytest.fixture(scope="session")
def start_project_with_accounts(tmp_path_factory: pytest.TempPathFactory) -> Projects:
    """Start a project of this name, which can import all three."""
    return _starter(tmp_path_factory, *SOURCES)


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
    # A session for each end: tests in between may end the server's sessions, or the server.
    with psycopg.connect(**address, autocommit=True) as session:
        quoted = sql.Identifier(name)
        session.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(quoted))
        session.execute(sql.SQL("CREATE DATABASE {}").format(quoted))
    # The project's own tests run in the database that it migrated.
    server = {_TO_DJANGO[key]: value for key, value in address.items() if key in _TO_DJANGO}
    yield {"ENGINE": "django.db.backends.postgresql", "NAME": name, "TEST": {"NAME": name}, **server}
    with psycopg.connect(**address, autocommit=True) as session:
        scratch = "SELECT datname FROM pg_database WHERE starts_with(datname, %s)"
        kept = session.execute(scratch, [f"{SCRATCH_PREFIX}{name[:20]}_"]).fetchall()
        for (unused,) in [(name,), *kept]:
            session.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(unused)))
