"""Projects with hot accounts: slots and a queue for their own models, where ``accounts`` is not installed."""

import pytest

from tests.installed.conformance import ProjectTests
from tests.installed.conftest import Databases, Projects
from tests.installed.project import Project

APPS = ["django_lockstep", "accounts.contrib.slotted", "tills"]


def made(project: Project) -> Project:
    project.manage("makemigrations", "tills")
    project.add_guards("tills", 'AddVersionGuard("Till")', 'AppendOnly("TillEntry")')
    project.manage("migrate")
    return project


@pytest.fixture(scope="module")
def project(start_project_with_accounts: Projects, make_database: Databases) -> Project:
    project = start_project_with_accounts("hot")
    project.add_app("tills")
    project.configure(apps=APPS, database=make_database("hot"))
    return made(project)


class TestHot(ProjectTests):
    def test_accounts_is_not_there(self, project: Project) -> None:
        tables = project.tables("accounts_")
        assert "accounts_slotted_slot" in tables
        assert "accounts_account" not in tables


def test_on_sqlite_it_is_done_in_steps(start_project_with_accounts: Projects) -> None:
    project = start_project_with_accounts("hot_sqlite")
    project.add_app("tills")
    database = {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": str(project.folder / "db.sqlite3"),
        "OPTIONS": {"transaction_mode": "IMMEDIATE"},
    }
    project.configure(apps=APPS, database=database)
    assert "OK" in made(project).test()
