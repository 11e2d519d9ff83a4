"""The strategies again, with SQL that was compiled once: what `accounts.strategies` sends, in fewer round trips.

Each function does what the class of its name does, for one account outside of a transaction, and returns the account as
written. Where there is no such account, or it does not allow the change, nothing is written; the function raises as the
class does then, or returns None, and the class is asked to say why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial
from types import MappingProxyType
from typing import Any

from django.db import NotSupportedError, connections, transaction

from accounts.abstract import AbstractAccount
from accounts.contention import Contention
from accounts.statements import Ledger
from django_lockstep.errors import StaleVersionError
from django_lockstep.locking.memory import take_over
from django_lockstep.locking.retry import retry_on_conflict, tell
from django_lockstep.locking.transactions import transaction as isolated_transaction

__all__ = ["FAST", "advisory_lock", "retried"]

Account = AbstractAccount
Accounts = Ledger[AbstractAccount]

# One policy for all that retry, so that their figures compare: patient, because on a hot row somebody always wins.
retried = retry_on_conflict(attempts=1000, wait_initial=0.001, wait_max=0.1, timeout=60)


def pessimistic(ledger: Accounts, pk: object, amount: Decimal) -> Account | None:
    """BEGIN, SELECT FOR NO KEY UPDATE in the order of arrival, UPDATE with the entry, COMMIT."""
    with transaction.atomic(using=ledger.using):
        return _overwrite(ledger, ledger.lock(pk, wait="queue"), amount)


@retried
def pessimistic_nowait(ledger: Accounts, pk: object, amount: Decimal) -> Account | None:
    """Do the same with NOWAIT, again after a pause where somebody has the row."""
    with transaction.atomic(using=ledger.using):
        return _overwrite(ledger, ledger.lock(pk, wait="nowait"), amount)


def optimistic(ledger: Accounts, pk: object, amount: Decimal) -> Account | None:
    """SELECT, UPDATE with the entry where the version is the same; whoever lost waits for his turn the next time.

    Losers who only guess again lose again: on a hot row most of the work is thrown away, and by chance always the same
    ones win. One lost attempt is enough to know that waiting is quicker.
    """
    account, lost = _guess(ledger, pk, amount)
    return _insist(ledger.lock_and_add, ledger, pk, amount=amount) if lost else account


def adaptive(ledger: Accounts, pk: object, amount: Decimal) -> Account | None:
    """As `optimistic` on a calm row; where the last guesses were lost, wait for the row without guessing first."""
    row = (ledger.model, ledger.using, pk)
    if not contention.expected(row):
        account, lost = _guess(ledger, pk, amount)
        contention.note(row, conflict=lost)
        if not lost:
            return account
    return _insist(ledger.lock_and_add, ledger, pk, amount=amount)


def conditional_update(ledger: Accounts, pk: object, amount: Decimal) -> Account | None:
    """UPDATE with the entry, in the order of arrival."""
    return _insist(partial(ledger.add, wait="queue"), ledger, pk, amount=amount)


@retried
def serializable(ledger: Accounts, pk: object, amount: Decimal) -> Account | None:
    """BEGIN, SET TRANSACTION, SELECT, UPDATE with the entry, COMMIT; again after a serialization failure."""
    with isolated_transaction(isolation_level="serializable", using=ledger.using):
        return _overwrite(ledger, ledger.read(pk), amount)


def advisory(ledger: Accounts, pk: object, amount: Decimal) -> Account | None:
    """BEGIN, the advisory lock, SELECT, UPDATE with the entry, COMMIT."""
    with transaction.atomic(using=ledger.using):
        advisory_lock(ledger.using, f"{ledger.model._meta.db_table}:{pk}")
        return _overwrite(ledger, ledger.read(pk), amount)


def _insist(
    add: Callable[[object, Decimal], Account | None], ledger: Accounts, pk: object, *, amount: Decimal
) -> Account | None:
    """Add until that is done, or the account does not allow it; raise then as `AbstractAccount.balance_after` does.

    What the statement saw is gone. An account that would allow it now has been written by somebody else in between.
    """
    account = add(pk, amount)
    while account is None and (now := ledger.read(pk)) is not None:
        now.balance_after(amount)
        account = add(pk, amount)
    return account


def _guess(ledger: Accounts, pk: object, amount: Decimal) -> tuple[Account | None, bool]:
    """Read and write if unchanged; return the account, and whether somebody else was faster."""
    account = ledger.read(pk)
    lost = account is not None and not _write(ledger, account, amount)
    if lost:
        tell(StaleVersionError(model=ledger.model, pk=pk), attempt=1, wait=0.0)
    return account, lost


def _overwrite(ledger: Accounts, account: Account | None, amount: Decimal) -> Account | None:
    if account is not None:
        _write(ledger, account, amount, compare=False)
    return account


def _write(ledger: Accounts, account: Account, amount: Decimal, *, compare: bool = True) -> bool:
    """Write the balance computed from what was read, with its entry; see `Ledger.write`."""
    balance = account.balance_after(amount)
    written = ledger.write(account.pk, balance, seen=account.version, entry={"amount": amount}, compare=compare)
    take_over(account, written)
    return bool(written)


def advisory_lock(using: str, name: str) -> None:
    """Take the transaction-level advisory lock of this name. Raises ``NotSupportedError`` but on PostgreSQL."""
    connection = connections[using]
    if connection.vendor != "postgresql":
        raise NotSupportedError(f"advisory locks are taken on PostgreSQL only, not on {connection.vendor}")
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [name])


contention = Contention()
"""What this process knows of the accounts."""

FAST: Mapping[str, Callable[[Accounts, Any, Decimal], Account | None]] = MappingProxyType(
    {
        way.__name__: way
        for way in (pessimistic, pessimistic_nowait, optimistic, conditional_update, serializable, advisory, adaptive)
    }
)
"""The fast way of each strategy that has one, by its name; those that show mistakes, or another package, have none."""
