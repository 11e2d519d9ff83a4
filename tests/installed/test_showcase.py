"""Projects that take the showcase: as it is, with users or models of their own, and on SQLite."""

import json
import re
import shutil
from collections.abc import Callable
from typing import Any

import pytest

from tests.installed.conformance import AccountProjectTests
from tests.installed.conftest import Databases, Projects
from tests.installed.project import Project, migrate, print_tables
from tests.support.pages import ROOT

NEVER_CONNECTED = {"ENGINE": "django.db.backends.postgresql", "NAME": "never_connected_to"}
CLEAN = "System check identified no issues (0 silenced).\n"


@pytest.fixture(scope="class")
def project(request: pytest.FixtureRequest, start_project_with_accounts: Projects, make_database: Databases) -> Project:
    """The project that the class describes."""
    project = start_project_with_accounts(request.cls.name)
    request.cls.set_up(project, lambda: make_database(request.cls.name))
    return project


Database = Callable[[], dict[str, Any]]
"""Creates the project's database on the server of the tests."""


class TestOwnUsers(AccountProjectTests):
    """The showcase as it is; its users log in with their address, and have no user name."""

    name = "own_users"

    @staticmethod
    def set_up(project: Project, database: Database) -> None:
        project.add_teller(
            "django_lockstep.lab",
            database=database(),
            model="accounts.Account",
            AUTH_USER_MODEL="teller.Person",
            LOCKSTEP_LAB_RACES=["accounts.races.ready_made.RACES"],
        )

    def test_a_race_needs_no_user_name(self, project: Project) -> None:
        project.manage("simulate", "--check", "--strategies", "optimistic", "--operations", "4", "--workers", "2")

    def test_the_ready_made_races_need_none_either(self, project: Project) -> None:
        printed = project.manage("explore", "update-or-create:unique", "child-insert:for-update", "lock:then-read")
        assert printed.count(": holds") == 3

    def test_all_can_be_taken_back(self, project: Project) -> None:
        back, again = migrate("accounts", "zero"), migrate("accounts")
        assert project.execute(back, print_tables(("accounts_",)), again) == ["[]"]


def test_without_the_lab_all_but_the_simulation_works(start_project_without_lab: Projects) -> None:
    project = start_project_without_lab("without_lab")
    project.configure(apps=["django_lockstep", "accounts"], database=NEVER_CONNECTED)
    assert project.manage("check", "--fail-level", "DEBUG") == CLEAN
    assert "usage: manage.py reconcile" in project.manage("reconcile", "--help")
    done = project.run("manage.py", "simulate", "--workers", "2")
    needs = "simulate needs the race lab: pip install 'django-lockstep-accounts[lab]'"
    assert (done.returncode, done.stderr) == (2, f"CommandError: {needs}\n")


# Models of its own.

MYPY = """
[mypy]
strict = true
plugins = mypy_django_plugin.main

[mypy-site_of_others.*]
ignore_errors = true

[mypy-concurrency.*]
ignore_missing_imports = true

[mypy.plugins.django-stubs]
django_settings_module = site_of_others.settings
"""


class TestOwnAccounts(AccountProjectTests):
    """Other fields, other keys, other tables."""

    name = "own_accounts"

    @staticmethod
    def set_up(project: Project, database: Database) -> None:
        project.add_teller("django_lockstep.lab", database=database())

    def test_its_tables_have_the_names_it_gave_them(self, project: Project) -> None:
        assert project.tables("acme_") == ["acme_wallet", "acme_wallet_entry"]

    def test_its_processes_race_for_its_wallets(self, project: Project) -> None:
        options = ["--model", "teller.Wallet", "--format", "json", "--duration", "0.3", "--workers", "2", "--seed", "1"]
        done = project.run("manage.py", "simulate", *options)
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        rows = report["strategies"]
        assert [row["strategy"] for row in rows] == report["planned"]
        assert {row["verdict"] for row in rows if row["claims_safe"]} == {"correct"}
        assert all(row["succeeded"] > 0 for row in rows)

    def test_a_strict_type_checker_sees_the_installed_packages_types(self, project: Project) -> None:
        shutil.copy(ROOT / "tests" / "typed" / "api.py", project.folder)
        project.write("mypy.ini", MYPY)
        done = project.run("-W", "default", "-m", "mypy", "api.py", "teller/models.py")
        assert done.stdout == "Success: no issues found in 2 source files\n", done.stdout + done.stderr


MODELS = """
from django.db import models

from accounts.models import AbstractAccount, AbstractEntry


class {account}(AbstractAccount):
    pass


class {entry}(AbstractEntry):
    account = models.ForeignKey({account}, on_delete=models.PROTECT, related_name="entries")
"""


def test_names_of_its_models_get_in_nobodys_way(start_project_with_accounts: Projects) -> None:
    """The same as ours, and long ones."""
    project = start_project_with_accounts("branch")
    apps = {
        "branch_app": ("Account", "Entry"),
        "international_subscriptions": ("SubscriptionAccount", "SubscriptionAccountEntry"),
    }
    for app, (account, entry) in apps.items():
        project.write(f"{app}/__init__.py")
        project.write(f"{app}/models.py", MODELS.format(account=account, entry=entry))
    project.configure(apps=["django_lockstep", "accounts", *apps], database=NEVER_CONNECTED)
    assert project.manage("check", "--fail-level", "DEBUG") == CLEAN


class TestOnSqlite:
    """What does not need the server works, and what does says so."""

    name = "sqlite"

    @staticmethod
    def set_up(project: Project, database: Database) -> None:
        project.add_teller("django_lockstep.monitor", "django_lockstep.lab", database=project.sqlite())

    def test_what_cannot_be_tested_there_says_why(self, project: Project) -> None:
        skipped = re.findall(r"^(\w+) .* skipped [\"'](.*)[\"']$", project.test(), re.MULTILINE)
        assert dict(skipped) == {
            "test_sql_cannot_change_entries": "triggers are PostgreSQL's",
            "test_sql_raises_the_version_of_accounts": "triggers are PostgreSQL's",
        }

    def test_the_check_says_what_does_not_hold(self, project: Project) -> None:
        printed = project.manage("check", "--database", "default")
        assert "(lockstep.W001) Database 'default' (sqlite) ignores select_for_update()" in printed
        assert "1 issue (0 silenced)" in printed

    @pytest.mark.parametrize("command", ["simulate", "lock_report"])
    def test_commands_that_need_postgresql_say_so(self, project: Project, command: str) -> None:
        done = project.run("manage.py", command)
        assert done.returncode
        assert "CommandError: Database 'default' " in done.stderr
        assert "PostgreSQL" in done.stderr

    def test_no_deposit_is_lost(self, project: Project) -> None:
        assert project.manage("race").startswith("100.00 in 100 entries\n")

    def test_the_books_can_be_checked(self, project: Project) -> None:
        printed = project.manage("reconcile", "--model", "teller.Wallet")
        assert printed.endswith("Every balance of teller.Wallet matches its entries.\n")
