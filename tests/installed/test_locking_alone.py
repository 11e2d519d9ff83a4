"""A project that uses ``django_lockstep.locking`` for its own model, and installs no app of ours."""

from pathlib import Path

import pytest

from tests.installed.conformance import ProjectTests
from tests.installed.conftest import Databases, Projects
from tests.installed.project import Project

TEMPLATES = {
    "BACKEND": "django.template.backends.django.DjangoTemplates",
    "APP_DIRS": True,
    "OPTIONS": {
        "context_processors": [
            "django.template.context_processors.request",
            "django.contrib.auth.context_processors.auth",
            "django.contrib.messages.context_processors.messages",
        ],
    },
}


@pytest.fixture(scope="module")
def project(start_project: Projects, make_database: Databases) -> Project:
    project = start_project("locking_alone")
    project.add_app("seats")
    # The admin's pages come from the package's folder: no app of ours is installed.
    package = Path(project.evaluate("__import__('accounts').__path__[0]"))
    project.configure(
        apps=["seats"],
        database=make_database("locking_alone"),
        TEMPLATES=[{**TEMPLATES, "DIRS": [str(package / "templates")]}],
        STATICFILES_DIRS=[str(package / "static")],
    )
    project.manage("makemigrations", "seats")
    project.add_guards("seats", 'AddVersionGuard("Seat")')
    project.manage("migrate")
    return project


class TestLockingAlone(ProjectTests):
    def test_there_is_no_table_of_ours(self, project: Project) -> None:
        tables = project.evaluate("django.db.connection.introspection.table_names()")
        assert "seats_seat" in tables
        assert "accounts" not in tables

    def test_a_missing_guard_is_told_of(self, project: Project) -> None:
        project.manage("migrate", "seats", "0001")
        done = project.run("manage.py", "check", "--database", "default", "--fail-level", "WARNING")
        project.manage("migrate", "seats")
        assert done.returncode == 1
        assert "(lockstep.W004)" in done.stderr
        assert 'AddVersionGuard("Seat")' in done.stderr
