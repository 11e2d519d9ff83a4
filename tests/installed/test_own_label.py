"""Projects that have something called ``accounts`` already."""

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
def project(start_project: Projects, make_database: Databases) -> Project:
    project = start_project("own_label")
    project.add_app("teller")
    project.write("crm/__init__.py")
    project.write("crm/accounts/__init__.py")
    project.write("crm/accounts/models.py", CUSTOMERS)
    project.write("ledger/__init__.py")
    project.write("ledger/apps.py", LEDGER)
    apps = ["crm.accounts", "ledger.apps.LedgerConfig", "teller"]
    project.configure(apps=apps, database=make_database("own_label"), TELLER_MODEL="ledger_accounts.Account")
    project.manage("makemigrations", "accounts")
    project.manage("migrate")
    return project


class TestOwnLabel(AccountProjectTests):
    """One whose app has the label, and gives ours another one."""

    def test_both_have_their_tables(self, project: Project) -> None:
        tables = project.evaluate("django.db.connection.introspection.table_names()")
        assert "'accounts_account'" in tables
        assert "'ledger_accounts_account'" in tables
        assert "'ledger_accounts_entry'" in tables


def test_without_another_label_django_tells_of_the_clash(start_project: Projects) -> None:
    project = start_project("clash")
    project.write("crm/__init__.py")
    project.write("crm/accounts/__init__.py")
    project.configure(apps=["crm.accounts", "accounts"], database={"ENGINE": "django.db.backends.sqlite3"})
    done = project.run("manage.py", "check")
    assert "Application labels aren't unique, duplicates: accounts" in done.stderr


def test_a_package_of_that_name_hides_ours(start_project: Projects) -> None:
    project = start_project("hidden")
    refused = project.run("manage.py", "startapp", "accounts")
    assert "'accounts' conflicts with the name of an existing Python module" in refused.stderr
    project.write("accounts/__init__.py")
    assert "No module named 'django_lockstep.locking'" in project.run("-c", "import django_lockstep.locking").stderr
