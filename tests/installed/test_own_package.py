"""A project with a package ``accounts`` of its own: app label, model and tests. The library is installed."""

import re

import pytest

from tests.installed.conformance import ProjectTests
from tests.installed.conftest import Databases, Projects
from tests.installed.project import Project, migrate

ROOMS = ["django_lockstep.leases", "django_lockstep.editing", "django_lockstep.lab"]

BEFORE = """
from django.db import models


class Account(models.Model):
    customer = models.CharField(max_length=50)
    points = models.IntegerField(default=0)
"""

FILL = "[apps.get_model('accounts.Account').objects.create(customer=name, points=5) for name in ('Ada', 'Bob')]"
ROWS = "list(apps.get_model('accounts.Account').objects.order_by('pk').values_list('customer', 'points', 'version'))"

PYTEST = """
[pytest]
DJANGO_SETTINGS_MODULE = site_of_others.settings
python_files = tests_*.py
addopts = --reuse-db -p no:cacheprovider
"""


@pytest.fixture(scope="module")
def upgraded(start_project_with_lab: Projects, make_database: Databases) -> tuple[Project, str]:
    """The project, and its rows as they were when their table had just got a version."""
    project = start_project_with_lab("own_package")
    project.configure(apps=["django_lockstep", *ROOMS, "accounts"], database=make_database("own_package"))
    project.write("pytest.ini", PYTEST)
    project.write("accounts/__init__.py")
    project.write("accounts/models.py", BEFORE)
    project.manage("makemigrations", "accounts")
    project.execute(migrate(), FILL)
    project.add_app("accounts")
    project.manage("makemigrations", "accounts", "--name", "versions")
    guards = ['AddVersionGuard("Account")', 'AddVersionGuard("Seat")', 'AddEditGuard("Book")']
    project.add_guards("accounts", *guards, after="0002_versions")
    (rows,) = project.execute(migrate(), f"print({ROWS})")
    return project, rows


@pytest.fixture(scope="module")
def project(upgraded: tuple[Project, str]) -> Project:
    return upgraded[0]


class TestOwnPackage(ProjectTests):
    def test_rows_that_were_there_have_their_first_version(self, upgraded: tuple[Project, str]) -> None:
        assert upgraded[1] == "[('Ada', 5, 1), ('Bob', 5, 1)]"

    def test_accounts_is_its_own(self, project: Project) -> None:
        places = project.run("-c", "import accounts; print(accounts.__file__); import accounts.strategies")
        assert places.stdout == f"{project.folder / 'accounts' / '__init__.py'}\n"
        assert "No module named 'accounts.strategies'" in places.stderr

    def test_pytest_runs_its_tests(self, project: Project) -> None:
        script = str(project.python.with_name("pytest"))
        done = project.run(script, "-W", "error", "--junitxml", "report.xml")
        assert done.returncode == 0, done.stdout + done.stderr
        assert re.search(r"^=+ \d+ passed in", done.stdout, re.MULTILINE), done.stdout
        assert '<property name="race_schedules"' in (project.folder / "report.xml").read_text()

    def test_its_own_races_are_explored(self, project: Project) -> None:
        assert "accounts.races.spending: holds" in project.manage("explore", "accounts.races.spending")

    def test_its_tables_are_beside_those_of_the_rooms(self, project: Project) -> None:
        tables = project.tables("accounts", "lockstep_leases")
        names = ("account", "book", "publisher", "result", "seat")
        assert tables == [*(f"accounts_{name}" for name in names), "lockstep_leases_lease"]
