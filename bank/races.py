"""The races of the front page: Ada takes 30 and Bob 20 from an account with 100, without a lock and by both kinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Any

from django.db import transaction

from accounts.models import Account
from accounts.races.rows import accounts, one_account
from django_lockstep.lab.races import Race
from django_lockstep.lab.scenario import Scenario
from django_lockstep.lab.wording import gettext as _

AMOUNTS: Mapping[str, int] = MappingProxyType({"Ada": 30, "Bob": 20})
"""What each of the two takes."""
LEFT = Decimal(50)
"""What must be left of 100."""


def unprotected_withdraw(pk: Any, amount: int) -> None:
    """Subtract the amount, as it is often written: right in every test of one user at a time."""
    with transaction.atomic():
        account = Account.objects.get(pk=pk)
        balance = account.balance - amount
        Account.objects.filter(pk=pk).update(balance=balance)


def without_lock(pk: Any, amount: int) -> None:
    unprotected_withdraw(pk, amount)


def with_lock(pk: Any, amount: int) -> None:
    Account.withdraw(pk, amount)


def with_version(pk: Any, amount: int) -> int:
    account, retries = Account.objects.get(pk=pk), 0
    while not account.try_withdraw(amount):
        account.refresh_from_db()
        retries += 1
    return retries


def balance(pk: Any) -> str:
    return str(accounts(pk).get().balance)


def _race(
    name: str,
    text: str,
    withdrawal: Callable[[Any, int], int | None],
    *,
    method: Callable[..., Any],
    holds: bool = True,
) -> Race:
    def actor(amount: int) -> Callable[[Any], int | None]:
        return lambda pk: withdrawal(pk, amount)

    scenario = Scenario(
        set_up=one_account,
        actors={name: actor(amount) for name, amount in AMOUNTS.items()},
        invariant=lambda pk: accounts(pk).get().balance == LEFT,
        observe=balance,
    )
    return Race(name=name, text=text, scenario=scenario, holds=holds, code=(method,))


RACES: Mapping[str, Race] = MappingProxyType(
    {
        race.name: race
        for race in (
            _race(
                "front:without",
                _("Ada takes 30, Bob takes 20 from a balance of 100: read, compute, write, in a transaction."),
                without_lock,
                method=unprotected_withdraw,
                holds=False,
            ),
            _race(
                "front:pessimistic",
                _("The same by Account.withdraw(), which locks the row first."),
                with_lock,
                method=Account.withdraw,
            ),
            _race(
                "front:optimistic",
                _("The same by account.try_withdraw(); on False, the caller reads the account again."),
                with_version,
                method=Account.try_withdraw,
            ),
        )
    }
)
"""The races by name."""
