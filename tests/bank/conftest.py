"""Data folders that leave nothing behind, of either kind that a root sees and of the one that a user sees."""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from bank.embedded import folder
from tests.bank.processes import postmaster, server_is_gone, wait_for_servers_end


@pytest.fixture(scope="session")
def used_pgdata(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A data folder that all tests use; under root one that the server's account cannot reach."""
    path = tmp_path_factory.mktemp("embedded") / "pgdata"
    yield path
    remove(path)


@pytest.fixture
def pgdata(used_pgdata: Path) -> Iterator[Path]:
    """A data folder whose server does not run, used before or not."""
    yield used_pgdata
    stop(used_pgdata)


@pytest.fixture
def new_pgdata(tmp_path: Path) -> Iterator[Path]:
    """A data folder to be; under root one that the server's account cannot reach."""
    path = tmp_path / "pgdata"
    yield path
    stop(path)
    remove(path)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """An empty folder that every account can pass through."""
    with tempfile.TemporaryDirectory(prefix="bank-") as name:
        path = Path(name).resolve()
        path.chmod(0o755)
        yield path


@pytest.fixture
def open_pgdata(open_folder: Path) -> Iterator[Path]:
    """A data folder to be that every account can reach."""
    path = open_folder / "pgdata"
    yield path
    stop(path)


def stop(pgdata: Path) -> None:
    """End the server that a failed test left running."""
    if pgdata.with_name("pgdata.locks").is_dir() and not server_is_gone(pgdata):
        with suppress(ProcessLookupError, FileNotFoundError):
            os.kill(postmaster(pgdata), signal.SIGQUIT)
            wait_for_servers_end(pgdata)


def remove(pgdata: Path) -> None:
    """Remove what root's processes put elsewhere, too."""
    shutil.rmtree(folder.fallback_folder(pgdata), ignore_errors=True)
    shutil.rmtree(pgdata, ignore_errors=True)
