"""Projects that install ``django_lockstep.leases`` and no other room."""

import pytest

from tests.installed.conformance import ProjectTests
from tests.installed.conftest import Databases, Projects
from tests.installed.project import Project

APPS = ["django_lockstep", "django_lockstep.leases", "jobs"]


@pytest.fixture(scope="module")
def project(start_project: Projects, make_database: Databases) -> Project:
    project = start_project("leases_alone")
    project.add_app("jobs")
    project.configure(apps=APPS, database=make_database("leases_alone"))
    project.manage("makemigrations", "jobs")
    project.manage("migrate")
    return project


class TestLeasesAlone(ProjectTests):
    def test_its_own_tests_pass(self, project: Project) -> None:
        assert "PostgreSQL has guards" in project.test()

    def test_its_table_is_the_only_one_of_ours(self, project: Project) -> None:
        assert project.tables("lockstep", "accounts") == ["lockstep_leases_lease"]

    def test_the_migrations_can_be_taken_back(self, project: Project) -> None:
        project.manage("migrate", "lockstep_leases", "zero")
        tables = project.tables("lockstep")
        project.manage("migrate")
        assert tables == []

    def test_commands(self, project: Project) -> None:
        # The key is not one of the project's own tests: they use the same database, and may run later.
        command = ("manage.py", "run_exclusive", "commands", "--ttl", "60")
        done = project.run(*command, "--at-least", "60", "--", "echo", "ran")
        assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr
        again = project.run(*command, "--", "echo", "ran")
        assert (again.returncode, again.stdout) == (75, "")
        assert "commands" in project.manage("leases")


@pytest.fixture(scope="module")
def on_sqlite(start_project: Projects) -> Project:
    project = start_project("leases_sqlite")
    project.add_app("jobs")
    database = {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": str(project.folder / "db.sqlite3"),
        "OPTIONS": {"transaction_mode": "IMMEDIATE"},
    }
    project.configure(apps=APPS, database=database)
    project.manage("makemigrations", "jobs")
    project.manage("migrate")
    return project


def test_on_sqlite_all_but_the_guard_works(on_sqlite: Project) -> None:
    assert "guards are PostgreSQL's" in on_sqlite.test()


def test_on_sqlite_a_check_says_what_does_not_hold(on_sqlite: Project) -> None:
    printed = on_sqlite.manage("check", "--database", "default")
    assert "(lockstep.W020) Leases on database 'default' (sqlite) have no guard" in printed
