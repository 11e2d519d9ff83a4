"""A project that takes the showcase as it is: both wheels, and its `Account`."""

import pytest

from tests.installed.conformance import AccountProjectTests, assert_right, simulate
from tests.installed.conftest import Databases, Projects
from tests.installed.project import Project


@pytest.fixture(scope="module")
def project(start_project_with_accounts: Projects, make_database: Databases) -> Project:
    project = start_project_with_accounts("as_it_is")
    project.add_app("teller")
    apps = ["django_lockstep", "django_lockstep.lab", "accounts", "teller"]
    project.configure(apps=apps, database=make_database("as_it_is"), TELLER_MODEL="accounts.Account")
    project.manage("migrate")
    return project


class TestAsItIs(AccountProjectTests):
    def test_its_processes_race_for_its_accounts(self, project: Project) -> None:
        assert_right(simulate(project, "accounts.Account"))

    def test_all_can_be_taken_back(self, project: Project) -> None:
        project.manage("migrate", "accounts", "zero")
        assert project.tables("accounts_") == []
        project.manage("migrate", "accounts")
