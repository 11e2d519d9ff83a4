"""Starts a seeded project as one of its own, and runs its test suite on the server of the test database."""

import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote, urlencode

from django.db import connection

from tests.support.pages import ROOT
from tests.support.processes import foreign_environment

_PYTEST = """[pytest]
DJANGO_SETTINGS_MODULE = {name}.settings
pythonpath = .
testpaths = {name}
filterwarnings = error
"""


def copy_shop(folder: Path, *, name: str = "seeded_shop") -> Path:
    """Make the project in an empty folder, and return it: there nothing says that it is part of our tests."""
    ignored = shutil.ignore_patterns("__pycache__", "units.py")
    shutil.copytree(ROOT / "tests" / "testapps" / name, folder / name, ignore=ignored)
    (folder / "pytest.ini").write_text(_PYTEST.format(name=name))
    return folder


def database_url() -> str:
    """Return the address of a database beside that of this process; pytest-django adds ``test_`` to its name."""
    server = connection.get_connection_params()
    user, host = (quote(str(server.get(name, "")), safe="") for name in ("user", "host"))
    password = f":{quote(server['password'], safe='')}" if server.get("password") else ""
    port = f":{server['port']}" if server.get("port") else ""
    # With the options, or it would have another durability.
    options = f"?{urlencode({'options': server['options']})}" if server.get("options") else ""
    return f"postgres://{user}{password}@{host}{port}/{server['dbname']}_shop{options}"


def run_suite(folder: Path, *options: str, url: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in the folder with the library's plugin; the project's environment names nothing of ours."""
    process = start_suite(folder, *options, url=url)
    printed = process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, *printed)


def start_suite(folder: Path, *options: str, url: str) -> subprocess.Popen[str]:
    """Begin to run it."""
    command = [sys.executable, "-m", "pytest", "-p", "django_lockstep.lab.pytest_plugin", *options]
    env = foreign_environment(DATABASE_URL=url)
    return subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
