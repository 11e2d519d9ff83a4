"""A project that takes the showcase as it is: both wheels, and its `Account`."""

import pytest

from tests.installed.conformance import AccountProjectTests
from tests.installed.conftest import Databases, Projects
from tests.installed.project import Project


@pytest.fixture(scope="module")
def project(start_project_with_accounts: Projects, make_database: Databases) -> Project:
    project = start_project_with_accounts("as_it_is")
    project.add_teller("django_lockstep.lab", database=make_database("as_it_is"), model="accounts.Account")
    return project


class TestAsItIs(AccountProjectTests):
    def test_all_can_be_taken_back(self, project: Project) -> None:
        project.manage("migrate", "accounts", "zero")
        assert project.tables("accounts_") == []
        project.manage("migrate", "accounts")


def test_without_the_lab_all_but_the_simulation_works(start_project_without_lab: Projects) -> None:
    project = start_project_without_lab("without_lab")
    database = {"ENGINE": "django.db.backends.postgresql", "NAME": "never_connected_to"}
    project.configure(apps=["django_lockstep", "accounts"], database=database)
    assert project.manage("check", "--fail-level", "DEBUG") == "System check identified no issues (0 silenced).\n"
    assert "usage: manage.py reconcile" in project.manage("reconcile", "--help")
    done = project.run("manage.py", "simulate", "--workers", "2")
    needs = "simulate needs the race lab: pip install 'django-lockstep-accounts[lab]'"
    assert (done.returncode, done.stderr) == (2, f"CommandError: {needs}\n")
