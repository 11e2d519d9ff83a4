"""Ways of this package to have more than one row's worth of deposits into one account."""

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
from benchmarks.deposit.books import AMOUNT, OPENING, open_books
from benchmarks.deposit.ways import Part, Way

__all__ = ["WAYS"]


@contextmanager
def slotted(part: Part) -> Iterator[Callable[[Any], object]]:
    """Call ``SlottedAccount.deposit``."""
    yield lambda account: SlottedAccount.deposit(account, AMOUNT)


@contextmanager
def queued(part: Part) -> Iterator[Callable[[Any], object]]:
    """Call ``QueuedChange.deposit``; the first worker has a consumer beside it.

    Nobody appends while too much waits to be applied: what is measured is what consumers keep up with.
    """
    numbers = count(1)

    def deposit(account: int) -> object:
        change = QueuedChange.deposit(account, AMOUNT)
        while not next(numbers) % _LOOK and _backlog() > _BACKLOG:
            time.sleep(0.005)
        return change

    with ExitStack() as stack:
        if part.worker == 0:
            stack.enter_context(_consumer())
        QueuedChange.deposit(part.rows + 1, AMOUNT).wait(60)
        yield deposit


_LOOK, _BACKLOG = 50, 500
"""After how many changes a worker looks how many wait, and how many may."""


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


def open_queue(rows: int) -> None:
    """Empty the queue and the tables behind it, and open accounts."""
    with connection.cursor() as cursor:
        cursor.execute(f"TRUNCATE {connection.ops.quote_name(QueuedChange._meta.db_table)} RESTART IDENTITY")
    open_books(rows)


def drain_queue() -> None:
    """Apply what is left."""
    drain(QueuedChange)


def open_slots(rows: int) -> None:
    """Empty the tables and open slotted accounts, every slot with what an account has elsewhere."""
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
        cursor.execute(f"VACUUM (ANALYZE) {account}, {slot}, {entry}")


WAYS = {
    way.name: way
    for way in (
        Way(name="slotted:deposit", open=slotted, open_books=open_slots, tables=(Slot, SlotEntry), slots=SLOTS),
        Way(name="queued:deposit", open=queued, open_books=open_queue, settle=drain_queue),
    )
}
"""All of them, by name."""
