"""Without the extra ``lab``, what explores says in one sentence what to install."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.accounts.races.commands import ROOT, environment

INSTALL = "Statements are read with sqlglot, which is not installed: pip install 'django-lockstep[lab]'"
BLOCK_SQLGLOT = "import sys; sys.modules['sqlglot'] = None; "
MANAGE = "from django.core.management import execute_from_command_line as run; run(['manage.py', *sys.argv[1:]])"
PYTEST = "import pytest; sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', '-c', '/dev/null', *sys.argv[1:]]))"
PLUGINS = ("-p", "pytest_django.plugin", "-p", "django_lockstep.lab.pytest_plugin", "--ds", "tests.settings")
CALL = """
import django; django.setup()
from django.core.management import CommandError, call_command
try:
    call_command("explore", "--list")
except CommandError as error:
    print(error.returncode, error)
"""


def run(code: str, *args: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run a program that cannot import sqlglot."""
    command = [sys.executable, "-c", BLOCK_SQLGLOT + code, *args]
    env = environment(PYTEST_DISABLE_PLUGIN_AUTOLOAD="1", PYTHONPATH=str(ROOT))
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "command", [["explore", "--list"], ["find_races", "--budget", "0"], ["anomalies"]], ids=" ".join
)
def test_a_command_ends_with_that_sentence(command: list[str]) -> None:
    done = run(MANAGE, *command)

    assert (done.returncode, done.stderr) == (2, f"CommandError: {INSTALL}\n")


def test_its_help_is_that_sentence() -> None:
    done = run(MANAGE, "help", "explore")

    assert (done.returncode, done.stdout, done.stderr) == (0, f"{INSTALL}\n", "")


def test_a_test_that_asks_for_the_fixture_fails_with_that_sentence(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it(race): pass\n")

    done = run(PYTEST, *PLUGINS, "test_it.py", folder=tmp_path)

    assert done.returncode == 1, done.stdout + done.stderr
    assert f"\n{INSTALL}\n" in done.stdout
    assert "Traceback" not in done.stdout
    assert "pytest_plugin.py" not in done.stdout


@pytest.mark.parametrize("option", ["--find-races", "--race-candidates=recording.jsonl"])
def test_pytest_s_options_are_refused_with_that_sentence(option: str, tmp_path: Path) -> None:
    done = run(PYTEST, *PLUGINS, option, folder=tmp_path)

    assert (done.returncode, done.stderr) == (4, f"ERROR: --find-races: {INSTALL}\n\n")


def test_a_call_raises_it() -> None:
    done = run(CALL)

    assert (done.returncode, done.stdout, done.stderr) == (0, f"2 {INSTALL}\n", "")
