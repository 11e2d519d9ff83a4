"""A project on SQLite: what does not need the server works, and what does says so."""

import re

import pytest

from tests.installed.conftest import Projects
from tests.installed.project import Project


@pytest.fixture(scope="module")
def project(start_project_with_accounts: Projects) -> Project:
    project = start_project_with_accounts("sqlite")
    project.add_teller("django_lockstep.monitor", "django_lockstep.lab", database=project.sqlite())
    return project


def test_what_cannot_be_tested_there_says_why(project: Project) -> None:
    skipped = re.findall(r"^(\w+) .* skipped [\"'](.*)[\"']$", project.test(), re.MULTILINE)
    assert dict(skipped) == {
        "test_sql_cannot_change_entries": "triggers are PostgreSQL's",
        "test_sql_raises_the_version_of_accounts": "triggers are PostgreSQL's",
    }


def test_the_check_says_what_does_not_hold(project: Project) -> None:
    printed = project.manage("check", "--database", "default")
    assert "(lockstep.W001) Database 'default' (sqlite) ignores select_for_update()" in printed
    assert "1 issue (0 silenced)" in printed


@pytest.mark.parametrize("command", ["simulate", "lock_report"])
def test_commands_that_need_postgresql_say_so(project: Project, command: str) -> None:
    done = project.run("manage.py", command)
    assert done.returncode
    assert "CommandError: Database 'default' " in done.stderr
    assert "PostgreSQL" in done.stderr


def test_no_deposit_is_lost(project: Project) -> None:
    assert project.manage("race").startswith("100.00 in 100 entries\n")


def test_the_books_can_be_checked(project: Project) -> None:
    printed = project.manage("reconcile", "--model", "teller.Wallet")
    assert printed.endswith("Every balance of teller.Wallet matches its entries.\n")
