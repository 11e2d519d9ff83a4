"""A project whose users log in with their address, and have no user name."""

import pytest

from tests.installed.conformance import AccountProjectTests
from tests.installed.conftest import Databases, Projects
from tests.installed.project import Project


@pytest.fixture(scope="module")
def project(start_project_with_accounts: Projects, make_database: Databases) -> Project:
    project = start_project_with_accounts("own_users")
    project.add_teller(
        "django_lockstep.lab",
        database=make_database("own_users"),
        model="accounts.Account",
        AUTH_USER_MODEL="teller.Person",
        LOCKSTEP_LAB_RACES=["accounts.races.ready_made.RACES"],
    )
    return project


class TestOwnUsers(AccountProjectTests):
    def test_a_race_needs_no_user_name(self, project: Project) -> None:
        project.manage("simulate", "--check", "--strategies", "optimistic", "--operations", "4", "--workers", "2")

    def test_the_ready_made_races_need_none_either(self, project: Project) -> None:
        printed = project.manage("explore", "update-or-create:unique", "child-insert:for-update", "lock:then-read")
        assert printed.count(": holds") == 3
