"""A server that goes away: holders go on when it comes back, or are told."""

import math
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from bank.embedded import locks
from tests.bank.conftest import remove, stop
from tests.bank.processes import User, data_of, postmaster, socket_of, wait_for_servers_end
from tests.django_lockstep.leases.test_processes import Program, program
from tests.support.processes import assert_clean, run
from tests.support.sessions import until

TTL = 30.0


@pytest.fixture
def pgdata(tmp_path: Path) -> Iterator[Path]:
    """A data folder with all tables, whose server is this test's alone."""
    path = tmp_path / "pgdata"
    assert_clean(run("manage.py", "migrate", "-v", "0", **own(path)))
    yield path
    stop(path)
    remove(path)


def own(pgdata: Path) -> dict[str, str]:
    """Return the environment of a program on that server."""
    return {"BANK_PGDATA": str(pgdata), "DATABASE_URL": "", "DJANGO_SETTINGS_MODULE": "bank.settings"}


def kill(pgdata: Path) -> None:
    os.kill(postmaster(pgdata), signal.SIGKILL)
    wait_for_servers_end(pgdata)


def asked(holder: Program) -> dict[str, object]:
    holder.send("held?")
    return holder.answer()


def remaining(holder: Program) -> float:
    """Return for how many seconds the holder still has the lease; infinity where it was lost."""
    return float(asked(holder).get("remaining", math.inf))  # type: ignore[arg-type]


def test_a_holder_goes_on_when_the_server_is_back(pgdata: Path) -> None:
    with program("keeper", str(TTL), **own(pgdata)) as holder:
        holder.answer()
        kill(pgdata)
        # What remains falls until a heartbeat has succeeded; when the lease was lost, nothing remains.
        last = remaining(holder)
        while (now := remaining(holder)) <= last:
            last = now
            time.sleep(0.1)
        assert asked(holder)["held"] is True


def test_a_holder_is_told_when_the_server_stays_away(pgdata: Path) -> None:
    with program("keeper", "2", **own(pgdata)) as holder:
        holder.answer()
        with locks.holding(pgdata.with_name("pgdata.locks") / "guard"):  # nobody can start it again
            kill(pgdata)
            assert holder.answer() == {"lost": True}
            assert asked(holder) == {"held": False}


WAITERS = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid <> pg_backend_pid()"


def test_a_wait_outlasts_a_restart(pgdata: Path) -> None:
    with User(pgdata, EMBEDDED_ROLE="postgres") as user, program("waiter", "300", **plain(pgdata, user)) as waiter:
        user.sql(
            "INSERT INTO lockstep_leases_lease (key, token, owner, ttl, acquired_at, expires_at)"
            " VALUES ('k', nextval('lockstep_leases_lease_token'), 'ada', 60, now(), now() + interval '1 day')"
        )
        until(lambda: user.sql(WAITERS) != "0", "the waiter")
        kill(pgdata)
        assert "cannot be reached" in waiter.answer()["said"]
        user.error()
        until(lambda: user.sql(WAITERS) != "0", "the waiter on the new server")
        user.sql("UPDATE lockstep_leases_lease SET expires_at = now()")
        assert waiter.answer() == {"acquired": True}


def plain(pgdata: Path, user: User) -> dict[str, str]:
    """Return the environment of a program that connects to that server, and cannot start it."""
    account, folder = user.sql("SELECT current_user"), quote(str(socket_of(pgdata)), safe="")
    port = (data_of(pgdata) / "postmaster.pid").read_text().splitlines()[3]
    return {**own(pgdata), "DATABASE_URL": f"postgresql://{account}@{folder}:{port}/bank"}
