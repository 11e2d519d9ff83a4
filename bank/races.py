"""The races of the front page: two withdrawals by the account's own methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Any

from accounts.models import Account
from accounts.races.rows import accounts, one_account, pair
from django_lockstep.lab.races import Race

__all__ = ["RACES"]

_AMOUNTS = (30, 20)
_LEFT = Decimal(50)
"""What is left of 100."""


def pessimistic(amount: int) -> Callable[[Any], None]:
    """Return a withdrawal that locks the row before it reads."""

    def withdraw(pk: Any) -> None:
        Account.withdraw(pk, amount)

    return withdraw


def optimistic(amount: int) -> Callable[[Any], None]:
    """Return a withdrawal that reads again if the row has changed."""

    def withdraw(pk: Any) -> None:
        account = accounts(pk).get()
        while not account.try_withdraw(amount):
            account.refresh_from_db()

    return withdraw


def balance(pk: Any) -> str:
    return str(accounts(pk).get().balance)


def _race(name: str, text: str, withdrawal: Callable[[int], Callable[[Any], None]]) -> Race:
    return pair(
        name,
        text,
        actor=[withdrawal(amount) for amount in _AMOUNTS],
        set_up=one_account,
        invariant=lambda pk: accounts(pk).get().balance == _LEFT,
        observe=balance,
        many=None,
    )


RACES: Mapping[str, Race] = MappingProxyType(
    {
        race.name: race
        for race in (
            _race("front:pessimistic", "Account.withdraw() of 30 and of 20 from a balance of 100.", pessimistic),
            _race(
                "front:optimistic",
                "account.try_withdraw() of 30 and of 20 from a balance of 100; who gets False reads again.",
                optimistic,
            ),
        )
    }
)
"""The races by name."""
