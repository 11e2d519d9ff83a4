"""A project that installs ``accounts`` and uses its `Account`."""

import pytest

from tests.installed.conformance import AccountProjectTests, assert_right, simulate
from tests.installed.conftest import Databases, Projects
from tests.installed.project import Project


@pytest.fixture(scope="module")
def project(start_project: Projects, make_database: Databases) -> Project:
    project = start_project("as_it_is")
    project.add_app("teller")
    apps = ["concurrency", "accounts", "django_lockstep.lab", "teller"]
    project.configure(apps=apps, database=make_database("as_it_is"), TELLER_MODEL="accounts.Account")
    project.manage("migrate")
    return project


class TestAsItIs(AccountProjectTests):
    def test_its_processes_race_for_its_accounts(self, project: Project) -> None:
        assert_right(simulate(project, "accounts.Account"))

    def test_all_can_be_taken_back(self, project: Project) -> None:
        project.manage("migrate", "accounts", "zero")
        assert "accounts_" not in project.evaluate("django.db.connection.introspection.table_names()")
        project.manage("migrate", "accounts")
