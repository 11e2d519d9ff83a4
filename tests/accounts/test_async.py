"""The asynchronous sisters of the account's methods, also many at a time behind a server with a pool."""

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.request import urlopen

import pytest
from asgiref.sync import async_to_sync
from django.db import connection

from accounts.models import Account, Entry
from accounts.races.rows import ends_with, one_account
from django_lockstep.lab.explorer import Scenario, explore
from tests.support.factories import AccountFactory
from tests.support.pages import ROOT
from tests.support.processes import free_port, listens_on
from tests.support.sessions import PATIENCE, all_others_are_idle, query, until

pytestmark = pytest.mark.django_db(transaction=True)

TASKS, POOL = 200, 20


def test_each_does_what_its_sister_does() -> None:
    ada, bob = AccountFactory.create_batch(2, balance=100)

    async def move() -> list[object]:
        ada_now = await Account.adeposit(ada.pk, 10)
        written = [await ada_now.atry_deposit(1), await ada_now.atry_withdraw(2), await ada.atry_deposit(5)]
        bob_now = await Account.awithdraw(bob.pk, "30.00")
        both = await Account.atransfer(ada.pk, bob.pk, 9)
        return [*written, bob_now.balance, *(account.balance for account in both)]

    assert async_to_sync(move)() == [True, True, False, 70, 100, 79]
    assert Entry.objects.count() == 6


async def read_and_write(pk: Any) -> None:
    account = await Account.objects.aget(pk=pk)
    await Account.objects.filter(pk=pk).aupdate(balance=account.balance + 10)


async def deposit_by_the_account(pk: Any) -> None:
    await Account.adeposit(pk, 10)


@pytest.mark.parametrize(("actor", "verdict"), [(read_and_write, "broken"), (deposit_by_the_account, "holds")])
def test_two_at_a_time(actor: Any, verdict: str) -> None:
    scenario = Scenario(set_up=one_account, actors=[actor, actor], invariant=ends_with(10)(2))
    assert explore(scenario).verdict == verdict


@pytest.fixture
def address() -> Iterator[str]:
    """Start uvicorn on this test's database."""
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "tests.accounts.async_app:application", f"--port={port}"]
    env = {**os.environ, "TESTED_DATABASE": connection.settings_dict["NAME"], "PGAPPNAME": "served"}
    process = subprocess.Popen(command, cwd=ROOT, env=env, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    until(lambda: listens_on(port), "the server to listen", patience=3 * PATIENCE)
    yield f"http://127.0.0.1:{port}"
    process.terminate()
    process.wait(PATIENCE)


def test_two_hundred_tasks_share_a_pool_of_twenty_and_leave_nothing(address: str) -> None:
    account = AccountFactory.create(balance=0)

    def deposit(number: int) -> int:
        with urlopen(f"{address}/{account.pk}/", timeout=4 * PATIENCE) as answer:  # noqa: S310
            return int(answer.status)

    # Twice: a connection that the first two hundred had kept would be missing to the others.
    with ThreadPoolExecutor(TASKS) as tasks:
        for wave in (1, 2):
            assert set(tasks.map(deposit, range(TASKS))) == {200}
            account.refresh_from_db()
            assert account.balance == Entry.objects.count() == wave * TASKS
    assert 1 <= query("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'served'") <= POOL
    assert all_others_are_idle()
