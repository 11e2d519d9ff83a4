"""Methods of this package for more deposits into one account than one row allows."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Any

from django.contrib.auth import get_user_model
from django.db import connection

from accounts.contrib.queued.consuming import drain
from accounts.contrib.queued.models import QueuedChange
from accounts.contrib.slotted.models import SLOTS, Slot, SlotEntry, SlottedAccount
from benchmarks.deposit.methods import DepositMethod, DepositWorker
from benchmarks.deposit.rows import AMOUNT, OPENING, reset_accounts

__all__ = ["METHODS"]


@contextmanager
def slotted(state: DepositWorker) -> Iterator[Callable[[Any], object]]:
    """Call ``SlottedAccount.deposit``."""
    yield lambda account: SlottedAccount.deposit(account, AMOUNT)


@contextmanager
def queued(state: DepositWorker) -> Iterator[Callable[[Any], object]]:
    """Call ``QueuedChange.deposit``; the first worker has a consumer beside it.

    Workers pause while too many changes are pending: the result is the rate that a consumer can sustain.
    """
    numbers = count(1)

    def deposit(account: int) -> object:
        change = QueuedChange.deposit(account, AMOUNT)
        # Counted seldom: the count is a scan, and would be most of what is measured.
        while not next(numbers) % _LOOK and _backlog() > _BACKLOG:
            time.sleep(0.005)
        return change

    with ExitStack() as stack:
        if state.worker == 0:
            stack.enter_context(_consumer())
        # Until the consumer is at work; the account is the one that the check ignores.
        QueuedChange.deposit(state.rows + 1, AMOUNT).wait(60)
        yield deposit


_LOOK, _BACKLOG = 50, 500
"""After how many changes a worker counts the pending ones, and their maximum."""


def _backlog() -> int:
    return QueuedChange.objects.filter(state=QueuedChange.State.PENDING).count()


@contextmanager
def _consumer() -> Iterator[None]:
    command = [sys.executable, "-c", _PROGRAM, str(connection.settings_dict["NAME"])]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:  # noqa: S603 - the interpreter and its own
        try:
            yield
        finally:
            process.terminate()


_PROGRAM = """
import sys, django
django.setup()
from django.core.management import call_command
from django.db import connection
connection.settings_dict["NAME"] = sys.argv[1]
call_command("apply_queued", "--poll", "0.005")
"""


def reset_queue(rows: int) -> None:
    """Empty the queue and the tables behind it, and open accounts."""
    with connection.cursor() as cursor:
        cursor.execute(f"TRUNCATE {connection.ops.quote_name(QueuedChange._meta.db_table)} RESTART IDENTITY")
    reset_accounts(rows)


def drain_queue() -> None:
    """Apply all pending changes."""
    drain(QueuedChange)


def reset_slots(rows: int) -> None:
    """Empty the tables and open slotted accounts, each slot with the opening balance of an account."""
    user, _ = get_user_model()._base_manager.get_or_create(username="benchmark")
    account, slot, entry = (
        connection.ops.quote_name(model._meta.db_table) for model in (SlottedAccount, Slot, SlotEntry)
    )
    with connection.cursor() as cursor:
        cursor.execute(f"TRUNCATE {account}, {slot}, {entry} RESTART IDENTITY CASCADE")
        cursor.execute(
            f"INSERT INTO {account} (user_id, size) SELECT %s, %s FROM generate_series(1, %s)",
            [user.pk, SLOTS, rows + 1],
        )
        cursor.execute(
            f"INSERT INTO {slot} (account_id, number, balance, overdraft_limit, updated_at) "
            f"SELECT id, number, %s, 0, now() FROM {account}, generate_series(0, %s) AS number ORDER BY id, number",
            [OPENING, SLOTS - 1],
        )
        # As for all contenders: the same statistics, and no autovacuum amid the measurement.
        cursor.execute(f"VACUUM (ANALYZE) {account}, {slot}, {entry}")


METHODS = {
    method.name: method
    for method in (
        DepositMethod(
            name="slotted:deposit", open=slotted, reset_accounts=reset_slots, tables=(Slot, SlotEntry), slots=SLOTS
        ),
        DepositMethod(name="queued:deposit", open=queued, reset_accounts=reset_queue, settle=drain_queue),
    )
}
