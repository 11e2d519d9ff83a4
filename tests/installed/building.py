"""The sdists and the wheels, built from this checkout once a session."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.pages import ROOT

SOURCES = {
    "django-lockstep": ROOT,
    "django-lockstep-lab": ROOT / "django_lockstep" / "lab",
    "django-lockstep-accounts": ROOT / "accounts",
}
"""Where each distribution is built."""

PACKAGES = {
    "django-lockstep": "django_lockstep",
    "django-lockstep-lab": "django_lockstep/lab",
    "django-lockstep-accounts": "accounts",
}
"""The one package that each distribution installs; that of the lab lies in the library's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """What a release of one distribution consists of."""

    wheel: Path
    sdist: Path


def build(name: str, factory: pytest.TempPathFactory) -> Distribution:
    """Build the sdist, and the wheel from it, without a network."""

    def build_into(target: Path) -> None:
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(target), str(SOURCES[name])]
        require_success(run(command, cwd=ROOT))

    target = make_once(factory, name, build_into)
    (wheel,), (sdist,) = target.glob("*.whl"), target.glob("*.tar.gz")
    return Distribution(wheel=wheel, sdist=sdist)


def make_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """Return the folder of this name, which the first of pytest's worker processes makes for all of them."""
    base = factory.getbasetemp()
    target = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    made = target.with_name(f"{name}.made")
    with target.with_name(f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            make(target)
            made.touch()
    return target


def run(command: list[str], *, cwd: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)


def require_success(done: subprocess.CompletedProcess[str]) -> str:
    """Return what the program printed, errors too; fail with it if the program did."""
    assert done.returncode == 0, f"{done.args}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr
