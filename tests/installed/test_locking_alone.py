"""A project that uses versions for its own model, and installs the library without any room."""

import pytest

from tests.installed.conformance import ProjectTests
from tests.installed.conftest import Databases, Projects
from tests.installed.project import Project


@pytest.fixture(scope="module")
def project(start_project: Projects, make_database: Databases) -> Project:
    project = start_project("locking_alone")
    project.add_app("seats")
    project.configure(apps=["django_lockstep", "seats"], database=make_database("locking_alone"))
    project.manage("makemigrations", "seats")
    project.add_guards("seats", 'AddVersionGuard("Seat")')
    project.manage("migrate")
    return project


class TestLockingAlone(ProjectTests):
    def test_there_is_no_table_of_ours(self, project: Project) -> None:
        assert project.tables("accounts", "lockstep", "seats") == ["seats_seat"]

    def test_a_missing_guard_is_told_of(self, project: Project) -> None:
        project.manage("migrate", "seats", "0001")
        done = project.run("manage.py", "check", "--database", "default", "--fail-level", "WARNING")
        project.manage("migrate", "seats")
        assert done.returncode == 1
        assert "(lockstep.W004)" in done.stderr
        assert 'AddVersionGuard("Seat")' in done.stderr
