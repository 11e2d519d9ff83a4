"""A project with account and entry models of its own: other fields, other keys, other tables."""

import shutil

import pytest

from tests.installed.conformance import AccountProjectTests, assert_right, simulate
from tests.installed.conftest import Databases, Projects
from tests.installed.project import Project
from tests.support.pages import ROOT

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


@pytest.fixture(scope="module")
def project(start_project_with_accounts: Projects, make_database: Databases) -> Project:
    project = start_project_with_accounts("own_accounts")
    project.add_teller("django_lockstep.lab", database=make_database("own_accounts"))
    return project


class TestOwnAccounts(AccountProjectTests):
    def test_its_tables_have_the_names_it_gave_them(self, project: Project) -> None:
        assert project.tables("acme_") == ["acme_wallet", "acme_wallet_entry"]

    def test_its_processes_race_for_its_wallets(self, project: Project) -> None:
        assert_right(simulate(project, "teller.Wallet"))

    def test_a_strict_type_checker_sees_the_installed_packages_types(self, project: Project) -> None:
        shutil.copy(ROOT / "tests" / "typed" / "api.py", project.folder)
        project.write("mypy.ini", MYPY)
        done = project.run("-W", "default", "-m", "mypy", "api.py", "teller/models.py")
        assert done.stdout == "Success: no issues found in 2 source files\n", done.stdout + done.stderr
