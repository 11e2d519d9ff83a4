"""The packages: their names, before Django is set up, and without optional packages."""

import ast
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pages import ROOT


def run_alone(program: str) -> str:
    """Run a program in an interpreter of its own, without settings."""
    environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


PACKAGES = [
    "accounts.contrib.dynamodb",
    *(f"django_lockstep{room}" for room in (".admin", ".editing", ".http", ".leases", ".locking", ".stores")),
]


@pytest.mark.parametrize("package", PACKAGES)
def test_each_public_name_can_be_imported_and_completed(package: str) -> None:
    module = importlib.import_module(package)
    assert set(module.__all__) <= set(dir(module))
    for name in module.__all__:
        assert getattr(module, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'no_such_name'"):
        _ = module.no_such_name


@pytest.mark.parametrize("package", PACKAGES)
def test_what_a_type_checker_is_told_of_is_all_that_there_is(package: str) -> None:
    tree = ast.parse(Path(str(importlib.import_module(package).__file__)).read_text("utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names = {alias.asname or alias.name for node in imports for alias in node.names}
    assert names - {"TYPE_CHECKING", "annotations", "lazy_exports"} == set(importlib.import_module(package).__all__)


def test_importing_it_imports_no_models() -> None:
    program = "import sys, django_lockstep; print([name for name in sys.modules if name.startswith('django.')])"
    assert run_alone(program) == "[]"


WITHOUT_DJANGO_CONCURRENCY = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "concurrency":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Missing())

import django
from django.conf import settings

settings.configure(
    INSTALLED_APPS=["django_lockstep"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
)
django.setup()

from django.db import DatabaseError, connection, models
import django_lockstep.http
from django_lockstep.locking import StaleVersionError, VersionedModel, retry

class Seat(VersionedModel):
    guest = models.CharField(max_length=10)
    class Meta:
        app_label = "house"

with connection.schema_editor() as editor:
    editor.create_model(Seat)
seat = Seat.objects.create(guest="Ada")
rival = Seat.objects.get()
seat.guest = "Bob"
seat.save()
rival.guest = "Eve"
try:
    rival.save()
except StaleVersionError as error:
    print(error.expected, error.actual, isinstance(error, DatabaseError))
    print(isinstance(error, retry.CONFLICTS))
    print(django_lockstep.http.problems.problem_of(error).status)
"""


def test_the_library_works_without_django_concurrency() -> None:
    assert run_alone(WITHOUT_DJANGO_CONCURRENCY).split() == ["1", "2", "False", "True", "409"]
