"""What works behind PgBouncer in transaction mode, and what says that it does not."""

import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from io import StringIO
from pathlib import Path
from urllib.parse import quote

import dj_database_url
import psycopg
import pytest
from django.core.management import call_command
from django.db import connection, connections, transaction
from django.db.utils import ConnectionHandler

from accounts.models import Account, Entry
from accounts.races.fixture import Fixture
from accounts.races.load import AccountTrial, Mix, Workload
from accounts.strategies import STRATEGIES
from django_lockstep.editing import check_in, check_out
from django_lockstep.lab.simulator.database import end_sessions
from django_lockstep.lab.simulator.load_plan import LoadPlan
from django_lockstep.leases.models import Lease
from tests.accounts.races.commands import manage
from tests.django_lockstep.leases.test_waiting import waiting_here
from tests.support.factories import AccountFactory, UserFactory
from tests.support.processes import listens_on
from tests.support.sessions import until
from tests.testapps.press.models import Article

pytestmark = pytest.mark.django_db(transaction=True)


_PORT = 6432
_SETTINGS = """
[databases]
* = host={host} port={port} user={user} {password}
[pgbouncer]
pool_mode = transaction
listen_addr =
listen_port = {own_port}
unix_socket_dir = {folder}
auth_type = any
default_pool_size = 4
ignore_startup_parameters = extra_float_digits, options
"""


@pytest.fixture
def url(transactional_db: None) -> Iterator[str]:
    """The URL of the test database behind a PgBouncer: Debian's, where it is installed."""
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip("pgbouncer is not installed")
    server = connection.get_connection_params()
    with tempfile.TemporaryDirectory(prefix="pgb-") as name:
        folder = Path(name)
        password = f"password={server['password']}" if server.get("password") else ""
        values = {"host": server["host"], "port": server.get("port") or 5432, "user": server["user"]}
        settings = folder / "pgbouncer.ini"
        settings.write_text(_SETTINGS.format(**values, password=password, own_port=_PORT, folder=folder))
        command = [program, "-q", str(settings)]
        if os.geteuid() == 0:
            # It refuses to run as root, and reaches the socket of the embedded server as that one's account alone.
            path = Path(server["host"])
            owner = path.owner() if path.is_absolute() else "nobody"
            shutil.chown(folder, owner)
            shutil.chown(settings, owner)
            command += ["-u", owner]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            try:
                until(lambda: listens_on(folder / f".s.PGSQL.{_PORT}"), "PgBouncer")
                yield f"postgresql://{server['user']}@{quote(name, safe='')}:{_PORT}/{server['dbname']}"
            finally:
                process.terminate()


@pytest.fixture
def pooled(url: str) -> Iterator[None]:
    """Django's connection goes through it."""
    direct = connections["default"]
    connections["default"] = ConnectionHandler({"default": dict(dj_database_url.parse(url))})["default"]
    yield
    connections["default"].close()
    connections["default"] = direct


@pytest.fixture
def take_session(url: str) -> Iterator[Callable[[], object]]:
    """Another client's transaction: from now on it has the session that was used last, unless that is in one."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(psycopg.connect(url)).execute("SELECT 1")


def test_a_simulation_works_and_leaves_nothing(url: str) -> None:
    strategies = ("--strategies", "pessimistic,optimistic,serializable,advisory")
    done = manage(
        "simulate", *strategies, "--workers", "4", "--operations", "100", "--format", "json", DATABASE_URL=url
    )
    assert done.returncode == 0, done.stderr
    assert {row["verdict"] for row in json.loads(done.stdout)["strategies"]} == {"correct"}
    assert not Account.objects.exists()
    assert not Entry.objects.exists()


def test_an_exploration_says_at_once_that_it_needs_the_server_itself(url: str) -> None:
    done = manage(
        "explore", "lost-update:naive", "--database", "default", "--yes-this-database-is-mine", DATABASE_URL=url
    )
    assert done.returncode == 2
    assert "'default' is reached through a connection pooler" in done.stderr
    assert "Traceback" not in done.stderr


def test_another_client_does_not_disturb_an_audit(pooled: None, take_session: Callable[[], object]) -> None:
    fixture = Fixture.make(Account, using="default", name="simulation")
    strategy = STRATEGIES["pessimistic"].bound(using="default")
    workload = Workload(accounts=3, mix=Mix(), seed=0)
    trial = AccountTrial(label="it", plan=LoadPlan(), strategies=(strategy,), fixture=fixture, workload=workload)
    trial.open()

    audited = trial.audited_accounts()
    first = next(audited)
    take_session()

    assert [first.account, *(audit.account for audit in audited)] == list(trial.versions)


def test_another_client_does_not_disturb_a_reconciliation(pooled: None, take_session: Callable[[], object]) -> None:
    class Output(StringIO):
        def write(self, text: str) -> int:
            take_session()
            return super().write(text)

    for account in AccountFactory.create_batch(2):
        Account.objects.filter(pk=account.pk).update(balance=account.balance + 1)
    output = Output()

    with pytest.raises(SystemExit):
        call_command("reconcile", stdout=output, stderr=StringIO())

    assert output.getvalue().count("\n") == 2


def test_what_inherits_the_name_of_a_simulation_is_not_ended_with_it(pooled: None, url: str) -> None:
    name = "simulate-1"
    with psycopg.connect(url, application_name=name, autocommit=True) as worker:
        worker.execute("SELECT 1")
    with psycopg.connect(url) as client:
        # Newer versions of PgBouncer take the name away from the session before the next client gets it.
        assert client.execute("SHOW application_name").fetchone() in {(name,), ("",)}

        end_sessions("default", [name])

        client.execute("SELECT 1")


def test_what_lives_in_a_transaction_does_without_a_session(pooled: None, take_session: Callable[[], object]) -> None:
    user, account = UserFactory.create(), AccountFactory.create(balance=100)
    handle, checked_out = Lease.objects.acquire("k", 60), check_out(Article, user)
    assert handle is not None
    stale = Account.objects.get(pk=account.pk)
    take_session()
    with transaction.atomic():
        handle.guard()
        Account.deposit(account.pk, 10)
    take_session()

    assert (handle.release(), check_in(Article, user, token=checked_out.token).current_status) == (True, "normal")
    assert not stale.try_deposit(5)
    assert Account.objects.get(pk=account.pk).balance == 110


def test_waiters_leave_sessions_to_the_holder_of_the_lease(pooled: None, url: str) -> None:
    """Twice as many as the pool has sessions; each that queued would keep one."""
    pool = {"default": dict(dj_database_url.parse(url))}
    handle = Lease.objects.acquire("k", 5)
    assert handle is not None
    tokens: list[int] = []

    def wait() -> None:
        connections["default"] = ConnectionHandler(pool)["default"]
        if (answer := Lease.objects.acquire("k", 60, wait=20)) is not None:
            tokens.append(answer.token)
            answer.release()
        connections["default"].close()

    waiters = [threading.Thread(target=wait) for _ in range(8)]
    for waiter in waiters:
        waiter.start()
    until(lambda: waiting_here() == 8, "all of them")
    handle.refresh()
    with transaction.atomic():
        handle.guard()
    assert handle.release()
    for waiter in waiters:
        waiter.join(60)
    assert len(tokens) == 8
