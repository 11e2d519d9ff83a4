"""Real processes hold, stop, die and contend."""

import math
import os
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from urllib.parse import quote

import pytest
from django.db import transaction

from bank.embedded import locks
from django_lockstep.leases.models import Lease
from tests.accounts.races.commands import environment
from tests.bank.conftest import remove, stop
from tests.bank.processes import User, data_of, postmaster, socket_of, wait_for_servers_end
from tests.django_lockstep.leases.holding import acquired
from tests.support.processes import Program, assert_clean, run
from tests.support.sessions import until
from tests.testapps.press.models import Note

pytestmark = pytest.mark.django_db(transaction=True)

LEASES_ALONE = "tests.django_lockstep.leases.live_settings"
SECONDS = os.environ.get("LEASES_CONTENTION_SECONDS", "2")
"""How long the processes contend; 60 for the long run."""


@contextmanager
def program(*args: str, module: str = "tests.django_lockstep.leases.programs", **env: str) -> Iterator[Program]:
    """Run a program of the module for the length of a block."""
    started = Program("-m", module, *args, env=environment(**env))
    try:
        yield started
    finally:
        started.process.send_signal(signal.SIGCONT)
        started.process.kill()
        started.process.communicate(timeout=30)


def test_a_holder_that_was_paused_past_its_ttl_does_no_harm() -> None:
    with program("writer", "3") as holder:
        token = holder.answer()["token"]
        holder.send("before")
        assert holder.answer() == {"written": "before"}
        holder.process.send_signal(signal.SIGSTOP)
        successor = acquired(wait=30)
        with transaction.atomic():
            successor.guard()
            Note.objects.create(text="successor", token=successor.token)
        holder.process.send_signal(signal.SIGCONT)
        holder.send("after")
        assert holder.answer() == {"lost": True}
    assert list(Note.objects.order_by("pk").values_list("text", "token")) == [
        ("before", token),
        ("successor", successor.token),
    ]


def test_a_holder_that_is_stopped_under_guard_keeps_the_lease_for_its_ttl_and_has_written_nothing() -> None:
    with program("guarding", "2") as holder:
        holder.answer()
        holder.process.send_signal(signal.SIGSTOP)
        successor = Lease.objects.acquire("k", 60, wait=60)
        holder.process.send_signal(signal.SIGCONT)
        holder.send("commit")
        assert holder.answer() == {"written": False}
    assert successor is not None
    assert not Note.objects.exists()


def test_eight_contending_processes_never_overlap() -> None:
    with ExitStack() as stack:
        contenders = [
            stack.enter_context(program("contender", SECONDS, DJANGO_SETTINGS_MODULE=LEASES_ALONE)) for _ in range(8)
        ]
        times = [contender.answer()["held"] for contender in contenders]
    assert all(times)
    assert_never_overlap(tuple(span) for spans in times for span in spans)


def assert_never_overlap(times: Iterable[tuple[float, float, int]]) -> None:
    """Each lease of these times, with beginning, end and token, ended before the next one, and tokens rise."""
    spans = sorted(times)
    tokens = [token for _, _, token in spans]
    assert tokens == sorted(set(tokens)) != []
    assert all(end <= begun for (_, end, _), (begun, _, _) in pairwise(spans))


# A server that goes away: holders go on when it comes back, or are told


TTL = 30.0


@pytest.fixture
def pgdata(tmp_path: Path) -> Iterator[Path]:
    """A data folder with all tables, whose server is this test's alone."""
    path = tmp_path / "pgdata"
    assert_clean(run("manage.py", "migrate", "-v0", "--skip-checks", **own(path)))
    yield path
    stop(path)
    remove(path)


def own(pgdata: Path) -> dict[str, str]:
    """Return the environment of a program on that server."""
    settings = "tests.django_lockstep.leases.bank_settings"
    return {"BANK_PGDATA": str(pgdata), "DATABASE_URL": "", "DJANGO_SETTINGS_MODULE": settings}


def kill(pgdata: Path) -> None:
    os.kill(postmaster(pgdata), signal.SIGKILL)
    wait_for_servers_end(pgdata)


def state_of(holder: Program) -> dict[str, object]:
    holder.send("held?")
    return holder.answer()


def remaining(holder: Program) -> float:
    """Return for how many seconds the holder still has the lease; infinity where it was lost."""
    return float(state_of(holder).get("remaining", math.inf))  # type: ignore[arg-type]


def test_a_holder_goes_on_when_the_server_is_back(pgdata: Path) -> None:
    with program("keeper", str(TTL), **own(pgdata)) as holder:
        holder.answer()
        kill(pgdata)
        # What remains falls until a heartbeat has succeeded; when the lease was lost, nothing remains.
        last = remaining(holder)
        while (now := remaining(holder)) <= last:
            last = now
            time.sleep(0.1)
        assert state_of(holder)["held"] is True


def test_a_holder_is_told_when_the_server_stays_away(pgdata: Path) -> None:
    with program("keeper", "2", **own(pgdata)) as holder:
        holder.answer()
        with locks.holding(pgdata.with_name("pgdata.locks") / "guard"):  # nobody can start it again
            kill(pgdata)
            assert holder.answer() == {"lost": True}
            assert state_of(holder) == {"held": False}


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
