"""A consumer goes on until it is asked to stop, whatever happens to its connection."""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest
from django.db import connection

from accounts.contrib.queued import consuming
from accounts.contrib.queued.consuming import run
from accounts.contrib.queued.models import QueuedChange
from tests.bank.conftest import remove, stop
from tests.bank.processes import postmaster
from tests.support.factories import AccountFactory
from tests.support.processes import assert_clean
from tests.support.processes import run as run_program
from tests.support.sessions import PATIENCE, Session, query, until

DEPOSIT = """
import django; django.setup()
from django.contrib.auth import get_user_model
from accounts.contrib.queued.models import QueuedChange
from accounts.models import Account
user, _ = get_user_model().objects.get_or_create(username="ada")
account, _ = Account.objects.get_or_create(user=user)
print(QueuedChange.deposit(account.pk, 5).wait(60).balance_after)
"""


@pytest.fixture
def consumer(other: Session, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """A session that consumes."""
    monkeypatch.setattr(consuming, "_LONGEST_PAUSE", 0.1)
    end = Event()
    running = other.start(run, QueuedChange, end, poll=0.01)
    yield other
    end.set()
    running.result(PATIENCE)


@pytest.mark.django_db(transaction=True)
def test_it_opens_another_connection_where_its_own_is_ended(consumer: Session) -> None:
    account = AccountFactory.create()
    for balance in (5, 10):
        query("SELECT pg_terminate_backend(%s, 20000)", consumer.pid)
        assert QueuedChange.deposit(account.pk, 5).wait(PATIENCE).balance_after == balance
        consumer.pid = query(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
            "AND backend_type = 'client backend'"
        )


@pytest.mark.django_db(transaction=True)
def test_it_tries_again_what_met_a_deadlock(consumer: Session, caplog: pytest.LogCaptureFixture) -> None:
    account = AccountFactory.create()
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION meet() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'met' USING ERRCODE = 'deadlock_detected'; END $$; "
            "CREATE TRIGGER meet BEFORE INSERT ON accounts_entry FOR EACH ROW EXECUTE FUNCTION meet()"
        )
        try:
            with caplog.at_level(logging.WARNING, logger="accounts.queued"):
                change = QueuedChange.deposit(account.pk, 5)
                until(lambda: len(caplog.records) > 2, "the consumer to have tried again")
        finally:
            cursor.execute("DROP FUNCTION meet() CASCADE")
    assert change.wait(PATIENCE).balance_after == 5


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of programs on a server that is this test's alone."""
    pgdata = tmp_path / "pgdata"
    own = {"BANK_PGDATA": str(pgdata), "DATABASE_URL": "", "DJANGO_SETTINGS_MODULE": "tests.settings"}
    assert_clean(run_program("manage.py", "migrate", "-v", "0", **own))
    yield own
    stop(pgdata)
    remove(pgdata)


def test_it_outlives_the_server_and_ends_when_it_is_asked(environment: dict[str, str]) -> None:
    pgdata = Path(environment["BANK_PGDATA"])
    command = [sys.executable, "manage.py", "apply_queued"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=os.environ | environment
    ) as running:
        try:
            for balance in ("5.00", "10.00"):
                assert run_program("-c", DEPOSIT, **environment).stdout == f"{balance}\n"
                if balance == "5.00":
                    # Not awaited: either program may be the one that starts it again.
                    os.kill(postmaster(pgdata), signal.SIGKILL)
            running.send_signal(signal.SIGTERM)
            assert running.communicate(timeout=60)[0] == "Changes decided: 2\n"
        finally:
            running.kill()  # a failure must not wait for it
    assert running.returncode == 0
