"""The rows of the races: one or two accounts, and their owner."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from django.contrib.auth import get_user_model

from accounts.contention import contention
from accounts.models import AbstractAccount, Account

__all__ = [
    "accounts",
    "balances",
    "ends_with",
    "make_user",
    "one_account",
    "open_account",
    "set_up_nothing",
    "two_accounts",
    "user_named",
    "users",
]


def users() -> Any:
    """Return all users, independent of the model's default manager."""
    return get_user_model()._base_manager


def user_named(name: str) -> dict[str, str]:
    """Return the lookup of a user by name, which is unique; also the values to create that user."""
    return {get_user_model().USERNAME_FIELD: name}


def make_user() -> Any:
    """Create a user and return the key."""
    return users().create(**user_named("race")).pk


def open_account(balance: int, *, overdraft_limit: int = 0, user: Any = None) -> AbstractAccount:
    """Open an account, for a new user unless the key of one is given; forget what earlier schedules taught."""
    contention.clear()
    owner = user or make_user()
    return Account.objects.create(user_id=owner, balance=Decimal(balance), overdraft_limit=Decimal(overdraft_limit))


def set_up_nothing() -> None:
    """Create nothing, for races that need no rows."""


def one_account() -> Any:
    """Open one account with a balance of 100."""
    return open_account(100).pk


def two_accounts() -> list[Any]:
    """Open two accounts of one owner with a balance of 100 each."""
    owner = make_user()
    # A limit that no race reaches: the CHECK constraint must not be what keeps a balance right.
    return [open_account(100, overdraft_limit=1000, user=owner).pk for _ in range(2)]


def accounts(pk: Any) -> Any:
    """Return the query set of this one account."""
    return Account.objects.filter(pk=pk)


def ends_with(amount: int) -> Callable[[int], Callable[[Any], bool]]:
    """Return the invariant, by the number of actors, of races in which each adds the amount to `one_account`."""
    return lambda number: lambda pk: accounts(pk).get().balance == 100 + amount * number


def balances(made: object) -> list[str]:
    """Return the balances in the order of keys."""
    return [str(balance) for balance in Account.objects.order_by("pk").values_list("balance", flat=True)]
