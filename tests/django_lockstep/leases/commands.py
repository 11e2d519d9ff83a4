"""``run_exclusive`` in processes of its own, on the database of the test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.accounts.races.commands import ROOT, any_left, environment


def run_exclusive(*args: str, **env: str) -> subprocess.Popen[str]:
    """Start the command in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "manage.py", "run_exclusive", *args],
        cwd=ROOT,
        env=environment(**env),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@contextmanager
def running(*args: str) -> Iterator[subprocess.Popen[str]]:
    """Start the command with a program that prints a line when it is there, and wait for that; end it at last."""
    process = run_exclusive(*args)
    try:
        assert process.stdout
        assert process.stdout.readline() == "here\n"
        yield process
    finally:
        if any_left(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=30)
