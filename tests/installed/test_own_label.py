"""Projects that have something called ``accounts`` already, and install the showcase all the same."""

import pytest

from tests.installed.conformance import AccountProjectTests
from tests.installed.conftest import Databases, Projects
from tests.installed.project import Project

CUSTOMERS = """
from django.db import models


class Account(models.Model):
    customer = models.CharField(max_length=50)
"""

LEDGER = """
from accounts.apps import AccountsConfig


class LedgerConfig(AccountsConfig):
    label = "ledger_accounts"
"""


@pytest.fixture(scope="module")
def project(start_project_with_accounts: Projects, make_database: Databases) -> Project:
    project = start_project_with_accounts("own_label")
    project.write("crm/__init__.py")
    project.write("crm/accounts/__init__.py")
    project.write("crm/accounts/models.py", CUSTOMERS)
    project.write("ledger/__init__.py")
    project.write("ledger/apps.py", LEDGER)
    project.add_teller(
        "crm.accounts",
        database=make_database("own_label"),
        model="ledger_accounts.Account",
        showcase="ledger.apps.LedgerConfig",
    )
    project.manage("makemigrations", "accounts")
    project.manage("migrate")
    return project


class TestOwnLabel(AccountProjectTests):
    """One whose app has the label, and gives ours another one."""

    def test_both_have_their_tables(self, project: Project) -> None:
        ours = [f"ledger_accounts_{name}" for name in ("account", "entry")]
        assert project.tables("accounts_", "ledger_") == ["accounts_account", *ours]


def test_without_another_label_django_tells_of_the_clash(start_project_with_accounts: Projects) -> None:
    project = start_project_with_accounts("clash")
    project.write("crm/__init__.py")
    project.write("crm/accounts/__init__.py")
    apps = ["django_lockstep", "crm.accounts", "accounts"]
    project.configure(apps=apps, database={"ENGINE": "django.db.backends.sqlite3"})
    done = project.run("manage.py", "check")
    assert "Application labels aren't unique, duplicates: accounts" in done.stderr


def test_a_package_of_that_name_hides_the_showcase_alone(start_project_with_accounts: Projects) -> None:
    project = start_project_with_accounts("hidden")
    refused = project.run("manage.py", "startapp", "accounts")
    assert "'accounts' conflicts with the name of an existing Python module" in refused.stderr
    project.write("accounts/__init__.py")
    assert "No module named 'accounts.models'" in project.run("-c", "import accounts.models").stderr
    assert project.evaluate("__import__('django_lockstep.locking').__name__") == "django_lockstep"
