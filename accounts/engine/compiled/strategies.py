"""The compiled counterparts of the strategies: one attempt each, with the lock and the guard of the class.

Each takes what the method of its class takes. ``NotImplemented`` leaves the change to the method: in an open
transaction, where the statements are not available, and where nothing was written, so that the method says why.
Retries stand around both, at the method.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django.db import transaction

from accounts.contention import contention
from accounts.engine.compiled.ledger import Ledger, ledger_alone
from django_lockstep.errors import StaleVersionError
from django_lockstep.locking.memory import apply_written
from django_lockstep.locking.retry import report_conflict
from django_lockstep.locking.transactions import isolated_transaction

__all__ = [
    "adaptive",
    "advisory",
    "conditional_update",
    "optimistic",
    "pessimistic",
    "pessimistic_nowait",
    "serializable",
]

Accounts = Ledger[Any]


def pessimistic(strategy: Any, pk: Any, amount: Decimal) -> Any:
    """BEGIN, SELECT FOR NO KEY UPDATE in the order of arrival, UPDATE with the entry, COMMIT."""
    if (ledger := _alone(strategy)) is None:
        return NotImplemented
    with transaction.atomic(using=ledger.using):
        return _overwritten(ledger, ledger.lock(pk, wait="queue"), amount)


def pessimistic_nowait(strategy: Any, pk: Any, amount: Decimal) -> Any:
    """Do the same with NOWAIT."""
    if (ledger := _alone(strategy)) is None:
        return NotImplemented
    with transaction.atomic(using=ledger.using):
        return _overwritten(ledger, ledger.lock(pk, wait="nowait"), amount)


def optimistic(strategy: Any, pk: Any, amount: Decimal) -> Any:
    """SELECT, UPDATE with the entry where the version is the same."""
    if (ledger := _alone(strategy)) is None or (account := ledger.read(pk)) is None:
        return NotImplemented
    if not _write(ledger, account, amount):
        raise StaleVersionError(model=ledger.model, pk=pk, expected=account.version)
    return account


def adaptive(strategy: Any, pk: Any, amount: Decimal) -> Any:
    """As `optimistic` on a calm row; where guesses were lost lately, lock, UPDATE and book in one statement."""
    if (ledger := _alone(strategy)) is None:
        return NotImplemented
    row = (ledger.model, ledger.using, pk)
    if not contention.expected(row):
        account = ledger.read(pk)
        if account is None:
            return NotImplemented
        written = _write(ledger, account, amount)
        contention.note(row, conflict=not written)
        if written:
            return account
        report_conflict(StaleVersionError(model=ledger.model, pk=pk, expected=account.version), attempt=1, wait=0.0)
    changed = ledger.lock_and_add(pk, amount)
    return NotImplemented if changed is None else changed


def conditional_update(strategy: Any, pk: Any, amount: Decimal) -> Any:
    """UPDATE with the entry, in the order of arrival."""
    ledger = _alone(strategy)
    changed = ledger and ledger.add(pk, amount, wait="queue")
    return NotImplemented if changed is None else changed


def serializable(strategy: Any, pk: Any, amount: Decimal) -> Any:
    """BEGIN, SET TRANSACTION, SELECT, UPDATE with the entry, COMMIT."""
    if (ledger := _alone(strategy)) is None:
        return NotImplemented
    with isolated_transaction(isolation_level="serializable", using=ledger.using):
        return _overwritten(ledger, ledger.read(pk), amount)


def advisory(strategy: Any, pk: Any, amount: Decimal) -> Any:
    """BEGIN, the strategy's advisory lock, SELECT, UPDATE with the entry, COMMIT."""
    if (ledger := _alone(strategy)) is None:
        return NotImplemented
    with transaction.atomic(using=ledger.using):
        strategy.lock_key(pk)
        return _overwritten(ledger, ledger.read(pk), amount)


def _alone(strategy: Any) -> Accounts | None:
    return ledger_alone(strategy.model, strategy.alias)


def _overwritten(ledger: Accounts, account: Any, amount: Decimal) -> Any:
    """Write the balance computed from what was read, whatever version the row has, with its entry."""
    if account is None:
        return NotImplemented
    _write(ledger, account, amount, compare=False)
    return account


def _write(ledger: Accounts, account: Any, amount: Decimal, *, compare: bool = True) -> bool:
    """Write the balance computed from what was read, with its entry; see `Ledger.write`."""
    balance = account.balance_after(amount)
    written = ledger.write(account, balance, seen=account.version, entry={"amount": amount}, compare=compare)
    apply_written(account, written)
    return bool(written)
