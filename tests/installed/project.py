"""Projects that are not ours: made by Django's own commands, run by an interpreter that has the built wheels."""

import ast
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from tests.installed.building import require_success, run

APPS = Path(__file__).resolve().parent / "apps"

_SETTINGS = """
INSTALLED_APPS += {apps!r}
DATABASES = {{"default": {database!r}}}
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
"""

_GUARDS = """
from django.db import migrations

{imports}


class Migration(migrations.Migration):
    dependencies = {dependencies}

    operations = [{operations}]
"""

_OPERATIONS = {
    "AddEditGuard": "django_lockstep.editing",
    "AddVersionGuard": "django_lockstep.locking",
    "AppendOnly": "accounts.operations",
}

_SET_UP = """import django
from django.apps import apps
from django.core.management import call_command
django.setup()"""

# What this environment has beside pytest-django and ours: a reader has none of it, and to load it takes two seconds.
_OTHERS = {plugin.name for plugin in entry_points(group="pytest11")} - {"django", "race"}

_PYTEST = """#!{python}
import sys

import pytest

sys.exit(pytest.main())
"""


def migrate(*target: str) -> str:
    """Return a statement for `Project.execute`: migrate all, or an app to this migration."""
    return f"call_command('migrate', *{target}, verbosity=0)"


def print_tables(prefixes: tuple[str, ...]) -> str:
    """Return a statement that prints the names of the tables that begin so."""
    names = "sorted(django.db.connection.introspection.table_names())"
    return f"print([name for name in {names} if name.startswith({prefixes})])"


def make_environment(folder: Path, *wheels: Path) -> None:
    """Make a virtual environment with the wheels, and with all that this one has for their dependencies."""
    require_success(run([sys.executable, "-m", "venv", "--without-pip", str(folder)], cwd=folder.parent))
    python = folder / "bin" / "python"
    (packages,) = folder.glob("lib/python*/site-packages")
    dependencies = {sysconfig.get_path(kind) for kind in ("purelib", "platlib")}
    (packages / "dependencies.pth").write_text("\n".join(sorted(dependencies)))
    pip = [sys.executable, "-m", "pip", "--isolated", "--disable-pip-version-check", "--python", str(python)]
    require_success(run([*pip, "install", "--quiet", "--no-index", *map(str, wheels)], cwd=folder))
    # The script that pip writes where pytest is installed; unlike python -m, it leaves the folder it runs in out.
    (folder / "bin" / "pytest").write_text(_PYTEST.format(python=python))


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A Django project in a folder of its own."""

    folder: Path
    python: Path

    @classmethod
    def start(cls, folder: Path, python: Path) -> "Project":
        """Do what a developer does first."""
        folder.mkdir()
        project = cls(folder=folder, python=python)
        require_success(project.run("-m", "django", "startproject", "site_of_others", "."))
        return project

    def sqlite(self) -> dict[str, Any]:
        """Return settings of a database in the project's folder."""
        # Without IMMEDIATE, SQLite refuses ("database is locked") transactions that read before others wrote.
        options = {"transaction_mode": "IMMEDIATE"}
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": str(self.folder / "db.sqlite3"), "OPTIONS": options}

    def configure(self, *, apps: Sequence[str], database: dict[str, Any], **settings: Any) -> None:
        """Add to the settings that Django made."""
        lines = [f"{name} = {value!r}\n" for name, value in settings.items()]
        with (self.folder / "site_of_others" / "settings.py").open("a") as file:
            file.write(_SETTINGS.format(apps=list(apps), database=database) + "".join(lines))

    def add_app(self, name: str) -> None:
        """Add one of the apps beside this module, whose migrations are still to be made; replace what is there."""
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(APPS / name, self.folder / name, ignore=ignored, dirs_exist_ok=True)

    def add_guards(self, app: str, *operations: str, after: str = "0001_initial") -> None:
        """Write the migration that the documentation asks for, after the one that makemigrations made."""
        names = [operation.partition("(")[0] for operation in operations]
        imports = "\n".join(f"from {_OPERATIONS[name]} import {name}" for name in dict.fromkeys(names))
        dependencies = [(app, after)]
        if "AddEditGuard" in names:
            dependencies.append(("lockstep_editing", "0001_initial"))
        text = _GUARDS.format(dependencies=dependencies, imports=imports, operations=", ".join(operations))
        self.write(f"{app}/migrations/{int(after[:4]) + 1:04}_guards.py", text)

    def add_accounts(self, *rooms: str, database: dict[str, Any]) -> None:
        """Add the app ``accounts``, which has nothing to do with the showcase, with its models for these rooms."""
        self.add_app("accounts")
        apps = ["django_lockstep", *(f"django_lockstep.{room}" for room in rooms), "accounts"]
        self.configure(apps=apps, database=database)
        self.manage("makemigrations", "accounts")
        books = ['AddEditGuard("Book")'] if "editing" in rooms else []
        self.add_guards("accounts", 'AddVersionGuard("Account")', 'AddVersionGuard("Seat")', *books)
        self.manage("migrate")

    def add_teller(self, *apps: str, database: dict[str, Any], model: str = "teller.Wallet", **settings: Any) -> None:
        """Add the showcase, other apps, and the app ``teller``, whose tests are of this account model."""
        self.add_app("teller")
        installed = ["django_lockstep", "accounts", *apps, "teller"]
        self.configure(apps=installed, database=database, TELLER_MODEL=model, **settings)
        self.manage("makemigrations", "teller")
        self.add_guards("teller", 'AddVersionGuard("Wallet")', 'AppendOnly("WalletEntry")')
        self.manage("migrate")

    def write(self, path: str, text: str = "") -> None:
        """Write a source file."""
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def manage(self, *arguments: str) -> str:
        """Return what a management command prints, errors too; it has to succeed."""
        return require_success(self.run("manage.py", *arguments))

    def test(self, *options: str) -> str:
        """Return what the project's own tests print; they have to pass, and there have to be some.

        They use the database that was migrated, and leave it as it was.
        """
        printed = self.manage("test", "--keepdb", "--shuffle", "-v", "2", *options)
        ran = re.search(r"^Ran (\d+) tests?", printed, re.MULTILINE)
        assert ran, printed
        assert int(ran[1]) > 0, printed
        return printed

    def execute(self, *statements: str, **environment: str) -> list[str]:
        """Run statements of Python in the project, all in one process, and return the lines that they print."""
        return require_success(self.run("-c", "\n".join([_SET_UP, *statements]), **environment)).splitlines()

    def tables(self, *prefixes: str) -> list[str]:
        """Return the names of the database's tables that begin so."""
        (names,) = self.execute(print_tables(prefixes))
        return list(ast.literal_eval(names))

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run the project's Python; warnings are errors, and nothing tells it of this checkout."""
        ours = ("PYTHON", "DJANGO", "DATABASE_URL", "PIP", "PYTEST", "BANK_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        env = {**kept, "PYTHONWARNINGS": "error", "DJANGO_SETTINGS_MODULE": "site_of_others.settings"}
        env["PYTEST_ADDOPTS"] = " ".join(f"-p no:{plugin}" for plugin in _OTHERS)
        return run([str(self.python), *arguments], cwd=self.folder, env={**env, **environment})
