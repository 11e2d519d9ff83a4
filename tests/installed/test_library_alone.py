"""An empty project with the library, and nothing of the showcase."""

import pytest

from tests.installed.conformance import CHECK, CHECK_MIGRATIONS, CleanProjectTests
from tests.installed.conftest import Databases, Projects
from tests.installed.project import Project

EVERY_ROOM = """
from site_of_others.settings import *

INSTALLED_APPS += [f"django_lockstep.{room}" for room in ("editing", "leases", "monitor", "stores")]
"""

IMPORT_EVERYTHING = """
import importlib
import pkgutil
import sys

import django

import django_lockstep

django.setup()
for module in pkgutil.walk_packages(django_lockstep.__path__, "django_lockstep."):
    importlib.import_module(module.name)
    print(module.name)
print(*{name.partition(".")[0] for name in sys.modules} & {"pytest", "rich", "sqlglot"}, file=sys.stderr)
"""


@pytest.fixture(scope="module")
def project(start_project: Projects, make_database: Databases) -> Project:
    project = start_project("library_alone")
    project.configure(apps=["django_lockstep"], database=make_database("library_alone"))
    project.write("every_room.py", EVERY_ROOM)
    project.manage("migrate")
    return project


class TestLibraryAlone(CleanProjectTests):
    def test_it_has_no_table(self, project: Project) -> None:
        assert project.tables("lockstep", "accounts") == []

    def test_the_showcase_cannot_be_imported(self, project: Project) -> None:
        assert "No module named 'accounts'" in project.run("-c", "import accounts").stderr

    def test_every_module_does_without_the_showcase_and_the_lab(self, project: Project) -> None:
        done = project.run("-c", IMPORT_EVERYTHING, DJANGO_SETTINGS_MODULE="every_room")
        assert done.returncode == 0, done.stderr
        assert {"django_lockstep.monitor.admin", "django_lockstep.leases.models"} <= set(done.stdout.split())
        assert "django_lockstep.lab" not in done.stdout
        assert done.stderr == "\n"

    def test_no_plugin_of_pytest_is_of_the_lab(self, project: Project) -> None:
        traced = project.run("-m", "pytest", "--trace-config", "--collect-only")
        assert "pytest_django.plugin" in traced.stdout
        assert "lockstep" not in "".join(line for line in traced.stdout.splitlines() if "rootdir" not in line)

    def test_every_room_is_clean_and_no_command_is_of_the_lab(self, project: Project) -> None:
        commands = "print(*django.core.management.get_commands())"
        *_, names = project.execute(CHECK, CHECK_MIGRATIONS, commands, DJANGO_SETTINGS_MODULE="every_room")
        assert "run_exclusive" in names.split()
        assert "explore" not in names.split()


def test_an_app_can_be_called_accounts(start_project: Projects) -> None:
    project = start_project("fresh")
    project.manage("startapp", "accounts")
    project.configure(apps=["django_lockstep", "accounts"], database={"ENGINE": "django.db.backends.sqlite3"})
    assert project.execute("print(apps.get_app_config('accounts').path)") == [str(project.folder / "accounts")]
