"""A server that goes away: holders go on when it comes back, or are told."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from bank.embedded import locks
from tests.bank.conftest import remove, stop
from tests.bank.processes import postmaster, wait_for_servers_end
from tests.django_lockstep.leases.test_processes import Program, program
from tests.support.sessions import until
from tests.test_project import assert_clean, run

TTL = 15.0


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
    return {"BANK_PGDATA": str(pgdata), "DATABASE_URL": "", "DJANGO_SETTINGS_MODULE": "tests.settings"}


def kill(pgdata: Path) -> None:
    os.kill(postmaster(pgdata), signal.SIGKILL)
    wait_for_servers_end(pgdata)


def asked(holder: Program) -> dict[str, object]:
    holder.send("held?")
    return holder.answer()


def test_a_holder_goes_on_when_the_server_is_back(pgdata: Path) -> None:
    with program("keeper", str(TTL), **own(pgdata)) as holder:
        holder.answer()
        kill(pgdata)
        before = asked(holder)["remaining"]
        until(lambda: asked(holder)["remaining"] > before, "a heartbeat")  # type: ignore[operator]
        assert asked(holder)["held"] is True


def test_a_holder_is_told_when_the_server_stays_away(pgdata: Path) -> None:
    with program("keeper", "2", **own(pgdata)) as holder:
        holder.answer()
        with locks.holding(pgdata.with_name("pgdata.locks") / "guard"):  # nobody can start it again
            kill(pgdata)
            assert holder.answer() == {"lost": True}
            assert asked(holder) == {"held": False}
