"""The life of the embedded server, seen from the processes that share it."""

import stat
from pathlib import Path

from tests.bank.processes import STARTED, User, data_of, moved, server_is_gone, socket_of


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


def test_commits_are_durable_and_nothing_listens_on_the_network(pgdata: Path) -> None:
    with User(pgdata) as user:
        assert user.sql("SHOW fsync") == user.sql("SHOW synchronous_commit") == user.sql("SHOW full_page_writes")
        assert user.sql("SHOW fsync") == "on"
        assert user.sql("SHOW listen_addresses") == ""
        assert user.sql("SHOW max_connections") == "200"


def test_processes_share_one_server_and_the_last_to_end_stops_it(pgdata: Path) -> None:
    with User(pgdata) as first, User(pgdata) as last:
        assert first.sql(STARTED) == last.sql(STARTED)
        first.end()
        assert last.sql("SELECT 1") == "1"
    assert server_is_gone(pgdata)
    assert not (data_of(pgdata) / "postmaster.pid").exists()


def test_data_outlives_the_server(pgdata: Path) -> None:
    with User(pgdata) as user:
        user.sql("CREATE TABLE kept AS SELECT 42 AS answer")
    with User(pgdata) as user:
        assert user.sql("SELECT answer FROM kept") == "42"


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


def test_the_socket_is_for_its_owner_alone(pgdata: Path) -> None:
    with User(pgdata) as user:
        user.sql("SELECT 1")
        assert stat.S_IMODE(socket_of(pgdata).stat().st_mode) == 0o700


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


def test_a_forked_child_does_not_end_its_parents_share(pgdata: Path) -> None:
    with User(pgdata, "forker_waits") as parent:
        started = parent.value()
        assert parent.sql(STARTED) == started
    assert server_is_gone(pgdata)


def test_a_forked_child_that_connects_has_a_share_of_its_own(pgdata: Path) -> None:
    with User(pgdata, "forker_ends") as parent:
        started = parent.value()
        parent.process.wait()
        assert parent.sql(STARTED) == started
    assert server_is_gone(pgdata)
