"""Errors of refused changes.

::

    AccountError
    ├── InvalidAmount          (also ValueError)
    ├── InsufficientFunds
    ├── IdempotencyKeyReused
    └── EntryIsFinal

All survive pickling. Conflicts between concurrent changes are `django_lockstep.errors`.
"""

from __future__ import annotations

from decimal import Decimal
from functools import partial
from typing import Any

__all__ = ["AccountError", "EntryIsFinal", "IdempotencyKeyReused", "InsufficientFunds", "InvalidAmount"]


class AccountError(Exception):
    """A change of an account was refused, and nothing was written.

    Where it was one of several changes: ``index`` is its position in their list, from 0, ``account`` the primary key.
    """

    index: int
    account: Any

    def __init__(self, message: str, **data: object) -> None:
        super().__init__(message)
        vars(self).update(data)

    def of_change(self, index: int, account: object) -> AccountError:
        """Return the same error about one change in a list: with its ``index`` and the ``account``'s key."""
        message = f"Change {index}, of account {account!r}: {self.args[0]}"
        return type(self)(message, **{**vars(self), "index": index, "account": account})

    def __reduce__(self) -> tuple[Any, ...]:
        # A caller may have passed any object as an amount; only plain values are sure to be picklable.
        data: dict[str, Any] = {
            key: value if isinstance(value, _PLAIN) else repr(value) for key, value in vars(self).items()
        }
        return partial(type(self), **data), self.args


_PLAIN = (str, int, float, Decimal, type(None))


class InvalidAmount(AccountError, ValueError):
    """The amount is not valid: ``value`` as it was given, ``rule`` that it breaks."""

    value: object
    rule: str


class InsufficientFunds(AccountError):
    """The account does not cover the amount: ``balance``, ``overdraft_limit``, ``amount`` (positive)."""

    balance: Decimal
    overdraft_limit: Decimal
    amount: Decimal


class IdempotencyKeyReused(AccountError):
    """The key ``idempotency_key`` belongs to another operation on this account: ``recorded`` is its signed amount."""

    idempotency_key: str
    recorded: Decimal


class EntryIsFinal(AccountError):
    """Entries are append-only: correct one by adding another."""
