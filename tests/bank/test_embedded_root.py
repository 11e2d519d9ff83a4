"""The embedded server of a process that runs as root, as which PostgreSQL itself refuses to run."""

import os
import shutil
from pathlib import Path

import pytest

from bank.embedded import binaries
from tests.bank.processes import User, data_of, postmaster

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="what only root needs")


def test_the_server_is_not_roots(pgdata: Path) -> None:
    with User(pgdata) as user:
        user.sql("SELECT 1")
        assert Path(f"/proc/{postmaster(pgdata)}").stat().st_uid == data_of(pgdata).stat().st_uid != 0


def test_permissions_of_existing_folders_are_not_changed(new_pgdata: Path) -> None:
    before = [parent.stat().st_mode for parent in new_pgdata.parents]
    with User(new_pgdata) as user:
        user.sql("SELECT 1")
    assert [parent.stat().st_mode for parent in new_pgdata.parents] == before
    assert not new_pgdata.exists()


def test_it_runs_a_copy_of_programs_that_its_account_cannot_reach(pgdata: Path, tmp_path: Path) -> None:
    wheel = hidden_wheel(tmp_path)
    with User(pgdata, PYTHONPATH=str(wheel)) as user:
        user.sql("SELECT 1")
        program = Path(f"/proc/{postmaster(pgdata)}/exe").resolve()
    assert program.parts[:4] == ("/", "var", "lib", "bank-embedded")
    shutil.rmtree(Path(*program.parts[:5]))


def hidden_wheel(folder: Path) -> Path:
    """Return a folder, closed to all but root, by which alone the wheel is found."""
    package = binaries.installed().parents[1]
    hidden = folder / "hidden"
    hidden.mkdir(mode=0o700)
    for name in (package.name, f"{package.name}.libs"):
        (hidden / name).symlink_to(package.with_name(name))
    return hidden
