"""Projects that install one room of the library and no other, or none at all, for models of their own."""

import re

import pytest

from tests.installed.conformance import ProjectTests
from tests.installed.conftest import Databases, Projects
from tests.installed.project import Project, migrate, print_tables

_EDIT_GUARDS = """
cursor = django.db.connection.cursor()
cursor.execute("SELECT count(*) FROM pg_trigger WHERE tgname LIKE '%edit_guard'")
print(cursor.fetchone()[0])"""
_CHECK = """
try:
    call_command("check", databases=["default"], fail_level="WARNING")
except django.core.management.base.SystemCheckError as error:
    print(error)"""


@pytest.fixture(scope="class")
def project(request: pytest.FixtureRequest, start_project: Projects, make_database: Databases) -> Project:
    rooms = request.cls.rooms
    name = "_".join([*rooms, "alone"])
    project = start_project(name)
    project.add_accounts(*rooms, database=make_database(name))
    return project


class TestLockingAlone(ProjectTests):
    rooms = ()
    tests = ("accounts.tests_of_seats",)

    def test_there_is_no_table_of_ours(self, project: Project) -> None:
        assert project.tables("accounts", "lockstep") == ["accounts_account", "accounts_seat"]

    def test_a_missing_guard_is_told_of(self, project: Project) -> None:
        printed = "".join(project.execute(migrate("accounts", "0001"), _CHECK, migrate("accounts")))
        assert "(lockstep.W004)" in printed
        assert 'AddVersionGuard("Seat")' in printed


class TestEditingAlone(ProjectTests):
    rooms = ("editing",)
    tests = ("accounts.tests_of_books",)

    def test_its_tables_are_the_only_ones_of_ours(self, project: Project) -> None:
        tables = project.tables("lockstep")
        assert "lockstep_editing_editlock" in tables
        assert {name for name in tables if not name.startswith("lockstep_editing_")} == set()

    def test_the_guards_can_be_taken_back(self, project: Project) -> None:
        back, again = migrate("accounts", "0001"), migrate("accounts")
        assert project.execute(back, _EDIT_GUARDS, again, _EDIT_GUARDS) == ["0", "1"]


class TestLeasesAlone(ProjectTests):
    rooms = ("leases",)
    tests = ("accounts.tests_of_results",)

    def test_its_table_is_the_only_one_of_ours_and_can_be_taken_back(self, project: Project) -> None:
        tables = print_tables(("lockstep",))
        printed = project.execute(tables, migrate("lockstep_leases", "zero"), tables, migrate())
        assert printed == ["['lockstep_leases_lease']", "[]"]

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
    project = start_project("rooms_on_sqlite")
    project.add_accounts("leases", database=project.sqlite())
    return project


def test_on_sqlite_what_cannot_be_tested_says_why(on_sqlite: Project) -> None:
    printed = on_sqlite.test("accounts.tests_of_seats", "accounts.tests_of_results")
    assert dict(re.findall(r"^(\w+) .* skipped [\"'](.*)[\"']$", printed, re.MULTILINE)) == {
        "test_a_lock_can_have_a_time_limit": "lock_timeout is PostgreSQL's",
        "test_sql_counts": "triggers are PostgreSQL's",
    }


def test_on_sqlite_a_check_says_what_does_not_hold(on_sqlite: Project) -> None:
    printed = on_sqlite.manage("check", "--database", "default")
    assert "(lockstep.W020) Leases on database 'default' (sqlite) have no guard" in printed


# A project that uses other packages that have a hand in writing rows, on the same models


NEIGHBOURS = ["concurrency", "simple_history", "pgtrigger", "pgactivity", "pglock", "django_fsm"]


class TestNeighbours(ProjectTests):
    """What each does is in the project's own tests."""

    @pytest.fixture(scope="class")
    @classmethod
    def project(cls, start_project: Projects, make_database: Databases) -> Project:
        for package in NEIGHBOURS:
            pytest.importorskip(package, reason=f"{package} is not installed")
        project = start_project("neighbours")
        project.add_app("neighbours")
        apps = [*NEIGHBOURS, "django_lockstep", "neighbours"]
        project.configure(apps=apps, database=make_database("neighbours"))
        project.manage("makemigrations", "neighbours")
        guards = [f'AddVersionGuard("{model}")' for model in ("Contract", "Parcel", "Badge")]
        project.add_guards("neighbours", *guards)
        project.manage("migrate")
        return project
