"""Programs and worker processes for tests; each worker has a connection of its own to the test database."""

import json
import multiprocessing
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

import django
from django.db import connection, connections

ROOT = Path(__file__).resolve().parents[2]


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program of this interpreter's environment in the repository."""
    env = {**os.environ, **environment}
    return subprocess.run([sys.executable, *command], cwd=ROOT, env=env, capture_output=True, text=True, check=False)


def start(*command: str, env: dict[str, str], stderr: int | None = None) -> "subprocess.Popen[str]":
    """Start a program of this interpreter's environment in the repository, in a process group of its own."""
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": stderr}
    return subprocess.Popen([sys.executable, *command], cwd=ROOT, env=env, text=True, start_new_session=True, **pipes)


def foreign_environment(**values: str) -> dict[str, str]:
    """Return the environment of another project, which names nothing of ours.

    Its pytest loads no plugin but those that the finder works with: all that are installed here would take two seconds.
    """
    ours = ("BANK_", "DATABASE_URL", "DJANGO_", "PYTEST_", "PYTHON")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    plugins = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "pytest_django.plugin,xdist.plugin"}
    return {**kept, **plugins, "PYTHONPATH": str(ROOT), **values}


class Program:
    """A program that is spoken to line by line, and answers in lines of JSON."""

    def __init__(self, *command: str, env: dict[str, str]) -> None:
        self.process = start(*command, env=env)

    def send(self, line: str) -> None:
        """Hand over a line and do not wait for its answer."""
        assert self.process.stdin
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """Wait for the next answer."""
        assert self.process.stdout
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer


def assert_clean(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def processes(count: int) -> Iterator[ProcessPoolExecutor]:
    """Give processes that run module-level functions on the database of this test."""
    name = connection.settings_dict["NAME"]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, mp_context=context, initializer=_prepare, initargs=(name,)) as pool:
        yield pool


def _prepare(name: str) -> None:
    django.setup()
    connection.settings_dict["NAME"] = name
    Finalize(None, connections.close_all, exitpriority=100)


def free_port() -> int:
    """Return a port of this machine that no program listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def listens_on(address: int | Path) -> bool:
    """Whether a program of this machine listens on the port, or on the socket, whose file is there before it does."""
    local = isinstance(address, Path)
    with socket.socket(socket.AF_UNIX if local else socket.AF_INET) as probe:
        return probe.connect_ex(str(address) if local else ("127.0.0.1", address)) == 0


def alive(pid: int) -> bool:
    """Whether the process runs: one that has ended and waits to be noticed does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"
