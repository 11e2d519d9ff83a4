"""The rows that the races are about: an account or two, and their owner."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django.contrib.auth import get_user_model

from accounts.models import AbstractAccount, Account

__all__ = [
    "accounts",
    "balances",
    "make_user",
    "nobody",
    "one_account",
    "open_account",
    "two_accounts",
    "user_named",
    "users",
]


def users() -> Any:
    """Return all users, whatever manager their model has."""
    return get_user_model()._base_manager


def user_named(name: str) -> dict[str, str]:
    """Return what makes or finds the user with this name to log in with, which is unique."""
    return {get_user_model().USERNAME_FIELD: name}


def make_user() -> Any:
    """Make a user and return the key."""
    return users().create(**user_named("race")).pk


def open_account(balance: int, *, overdraft_limit: int = 0, user: Any = None) -> AbstractAccount:
    """Open an account, for a new user unless the key of one is given."""
    owner = user or make_user()
    return Account.objects.create(user_id=owner, balance=Decimal(balance), overdraft_limit=Decimal(overdraft_limit))


def nobody() -> None:
    """Set up nothing."""


def one_account() -> Any:
    """Open one account with 100."""
    return open_account(100).pk


def two_accounts() -> list[Any]:
    """Open two accounts of one owner with 100 each."""
    owner = make_user()
    return [open_account(100, overdraft_limit=1000, user=owner).pk for _ in range(2)]


def accounts(pk: Any) -> Any:
    """Return the query set of this one account."""
    return Account.objects.filter(pk=pk)


def balances(made: Any) -> list[str]:
    """Return the balances in the order of keys."""
    return [str(balance) for balance in Account.objects.order_by("pk").values_list("balance", flat=True)]
