"""A project that uses other packages that have a hand in writing rows, on the same models."""

import pytest

from tests.installed.conformance import ProjectTests
from tests.installed.conftest import Databases, Projects
from tests.installed.project import Project

NEIGHBOURS = ["concurrency", "simple_history", "pgtrigger", "pgactivity", "pglock", "django_fsm"]


@pytest.fixture(scope="module")
def project(start_project: Projects, make_database: Databases) -> Project:
    for package in NEIGHBOURS:
        pytest.importorskip(package, reason=f"{package} is not installed")
    project = start_project("neighbours")
    project.add_app("neighbours")
    apps = [*NEIGHBOURS, "django_lockstep", "neighbours"]
    project.configure(apps=apps, database=make_database("neighbours"))
    project.manage("makemigrations", "neighbours")
    guards = [f'AddVersionGuard("{model}")' for model in ("Contract", "Parcel", "Badge")]
    project.add_guards("neighbours", *guards)
    project.manage("migrate")
    return project


class TestNeighbours(ProjectTests):
    """What each does is in the project's own tests."""
