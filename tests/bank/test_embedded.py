"""The life of the embedded server, seen from the processes that share it."""

import os
import shutil
import stat
from pathlib import Path

import pytest

from bank.embedded import binaries
from tests.bank.processes import STARTED, User, data_of, moved, postmaster, server_is_gone, socket_of


def test_the_first_processes_find_the_data_the_server_and_the_database_made_once(new_pgdata: Path) -> None:
    users = [User(new_pgdata) for _ in range(4)]
    for user in users:
        user.send(STARTED)
    assert len({user.value() for user in users}) == 1
    for user in users:
        assert user.sql("SELECT current_database()") == "bank"
        assert user.sql("SHOW server_version").startswith("18.")
        user.end()
    assert server_is_gone(new_pgdata)


def test_commits_are_durable_and_the_socket_is_for_its_owner_alone(pgdata: Path) -> None:
    with User(pgdata) as user:
        assert user.sql("SHOW fsync") == user.sql("SHOW synchronous_commit") == user.sql("SHOW full_page_writes")
        assert user.sql("SHOW fsync") == "on"
        assert user.sql("SHOW listen_addresses") == ""
        assert user.sql("SHOW max_connections") == "200"
        assert stat.S_IMODE(socket_of(pgdata).stat().st_mode) == 0o700


def test_processes_share_one_server_and_the_last_to_end_stops_it(pgdata: Path) -> None:
    with User(pgdata) as first, User(pgdata) as last:
        assert first.sql(STARTED) == last.sql(STARTED)
        first.end()
        assert last.sql("SELECT 1") == "1"
    assert server_is_gone(pgdata)
    assert not (data_of(pgdata) / "postmaster.pid").exists()


def test_a_path_too_long_for_a_socket_is_no_matter(pgdata: Path, open_folder: Path) -> None:
    with moved(pgdata, open_folder / ("long " * 30)) as path, User(path) as user:
        user.sql("SELECT 1")
        socket = socket_of(path)
        assert socket != path
        assert stat.S_IMODE(socket.stat().st_mode) == 0o700
        user.end()
        assert not socket.exists()


def test_a_path_may_hold_whatever_a_path_may_hold(pgdata: Path, open_folder: Path) -> None:
    with moved(pgdata, open_folder / "a $HOME, a 'quote', a \"quote\" and a `date`") as path, User(path) as user:
        assert user.sql("SHOW data_directory") == str(path)


def test_a_missing_test_database_is_djangos_to_make(pgdata: Path) -> None:
    with User(pgdata, "missing_test_database") as user:
        assert 'database "test_bank" does not exist' in user.value()


def test_dbshell_reaches_the_server(pgdata: Path) -> None:
    with User(pgdata, "shell") as user:
        output, _ = user.process.communicate()
    assert output.strip() == "bank"
    assert server_is_gone(pgdata)


def test_a_spawned_child_that_was_the_only_user_stops_the_server(pgdata: Path) -> None:
    with User(pgdata, "spawner") as parent:
        assert parent.value() > "2"
        assert parent.value() == "0"
        assert server_is_gone(pgdata)


@pytest.mark.parametrize("child", ["waits", "ends"], ids=["without a connection", "with one of its own"])
def test_a_forked_child_does_not_end_its_parents_share(pgdata: Path, child: str) -> None:
    with User(pgdata, f"forker_{child}") as parent:
        started = parent.value()
        if child == "ends":
            parent.process.wait()
        assert parent.sql(STARTED) == started
    assert server_is_gone(pgdata)


# As root, as which PostgreSQL itself refuses to run.

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="what only root needs")


@needs_root
def test_the_server_is_not_roots(pgdata: Path) -> None:
    with User(pgdata) as user:
        user.sql("SELECT 1")
        assert Path(f"/proc/{postmaster(pgdata)}").stat().st_uid == data_of(pgdata).stat().st_uid != 0


@needs_root
def test_permissions_of_existing_folders_are_not_changed(new_pgdata: Path) -> None:
    before = [parent.stat().st_mode for parent in new_pgdata.parents]
    with User(new_pgdata) as user:
        user.sql("SELECT 1")
    assert [parent.stat().st_mode for parent in new_pgdata.parents] == before
    assert not new_pgdata.exists()


@needs_root
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
