"""A project that uses ``django_lockstep.editing`` for its own models, and no other room."""

import pytest

from tests.installed.conformance import ProjectTests
from tests.installed.conftest import Databases, Projects
from tests.installed.project import Project

GUARDS = """
from django.db import migrations

from django_lockstep.editing import AddEditGuard


class Migration(migrations.Migration):
    dependencies = [("catalog", "0001_initial"), ("lockstep_editing", "0001_initial")]

    operations = [AddEditGuard("Book")]
"""


@pytest.fixture(scope="module")
def project(start_project: Projects, make_database: Databases) -> Project:
    project = start_project("editing_alone")
    project.add_app("catalog")
    apps = ["django_lockstep", "django_lockstep.editing", "catalog"]
    project.configure(apps=apps, database=make_database("editing_alone"))
    project.manage("makemigrations", "catalog")
    project.write("catalog/migrations/0002_guards.py", GUARDS)
    project.manage("migrate")
    return project


class TestEditingAlone(ProjectTests):
    def test_its_tables_are_the_only_ones_of_ours(self, project: Project) -> None:
        tables = project.tables("lockstep", "accounts")
        assert "lockstep_editing_editlock" in tables
        assert {name for name in tables if not name.startswith("lockstep_editing_")} == set()

    def test_the_guards_can_be_taken_back(self, project: Project) -> None:
        project.manage("migrate", "catalog", "0001")
        assert project.evaluate(_TRIGGERS) == "0"
        project.manage("migrate", "catalog")
        assert project.evaluate(_TRIGGERS) == "1"


_TRIGGERS = (
    "[cursor := __import__('django.db').db.connection.cursor(),"
    " cursor.execute(\"SELECT count(*) FROM pg_trigger WHERE tgname LIKE '%edit_guard'\"), cursor.fetchone()[0]][2]"
)
