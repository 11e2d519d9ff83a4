"""Methods from articles and other packages, on plain models of the same two tables."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from concurrency.exceptions import RecordModifiedError
from concurrency.fields import AutoIncVersionField
from django.conf import settings
from django.db import models, transaction
from django.db.models.functions import Now

from accounts.models import Account, Entry
from benchmarks.deposit.methods import Deposit, DepositMethod, DepositWorker, stateless
from benchmarks.deposit.rows import AMOUNT


def _money() -> Any:
    return models.DecimalField(max_digits=14, decimal_places=2)


class AccountTable(models.Model):
    """The account's columns as a project without this package would declare them."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.DO_NOTHING, related_name="+")
    balance = _money()
    overdraft_limit = _money()
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        abstract = True
        app_label = "benchmarks"
        managed = False
        db_table = Account._meta.db_table


class PlainAccount(AccountTable):
    """The account with an ordinary column for its version."""

    version = models.BigIntegerField()


class ConcurrentAccount(AccountTable):
    """The account with django-concurrency's own field."""

    version = AutoIncVersionField()


class PlainEntry(models.Model):
    """The entry."""

    account_id = models.BigIntegerField()
    amount = _money()
    balance_after = _money()
    version_after = models.BigIntegerField()
    idempotency_key = models.CharField(max_length=255, null=True)  # noqa: DJ001 - the column as it is
    transfer = models.UUIDField(null=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        app_label = "benchmarks"
        managed = False
        db_table = Entry._meta.db_table


def _book(account: PlainAccount | ConcurrentAccount) -> None:
    PlainEntry._base_manager.create(
        account_id=account.pk, amount=AMOUNT, balance_after=account.balance, version_after=account.version
    )


def _changed(account: PlainAccount) -> PlainAccount:
    account.balance += AMOUNT
    account.version += 1
    account.save()
    _book(account)
    return account


def article(account_id: int) -> object:
    """Lock with select_for_update(), save(), create the entry: as the well-known article has it.

    H. Benita, "How to Manage Concurrency in Django Models", 2017.
    """
    with transaction.atomic():
        account = PlainAccount._base_manager.select_for_update().get(pk=account_id)
        return _changed(account)


@contextmanager
def concurrency(state: DepositWorker) -> Iterator[Deposit]:
    """Save with django-concurrency; retry after a random pause below a bound that doubles from 1 ms up to 100 ms."""

    def attempt(account_id: int) -> object:
        # A transaction for each attempt: after a conflict the block can only be rolled back.
        with transaction.atomic():
            account = ConcurrentAccount._base_manager.get(pk=account_id)
            account.balance += AMOUNT
            account.save()
            _book(account)
        return account

    def deposit(account_id: int) -> object:
        for number in count():
            try:
                return attempt(account_id)
            except RecordModifiedError:
                state.conflicts += 1
                # Full jitter: workers that met once would else meet again.
                time.sleep(random.uniform(0, min(0.1, 0.001 * 2 ** min(number, 10))))  # noqa: S311 - no secret
        raise AssertionError("count() does not end")

    yield deposit


def advisory(account_id: int) -> object:
    """Take pglock's advisory lock for the transaction, then read, save() and create the entry."""
    import pglock

    with pglock.advisory(f"account:{account_id}", xact=True):
        account = PlainAccount._base_manager.get(pk=account_id)
        return _changed(account)


METHODS = {
    method.name: method
    for method in (
        DepositMethod(name="django:article", open=stateless(article)),
        DepositMethod(name="django-concurrency:backoff", open=concurrency),
        DepositMethod(name="pglock:advisory", open=stateless(advisory), package="pglock"),
    )
}
