"""Races of two random transactions on two accounts: what ready-made races, which somebody has chosen, leave out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from decimal import Decimal
from functools import partial
from random import Random
from types import MappingProxyType
from typing import Any

from django.db import transaction
from django.db.models import F, QuerySet

from accounts.races.rows import accounts, balances, open_account, two_accounts
from django_lockstep.lab.scenario import Scenario
from django_lockstep.locking.transactions import isolated_transaction

__all__ = ["random_race"]

_MOST = 3
"""Actions of a transaction."""

_Action = Callable[[Any, Decimal], object]
"""Takes the key of an account and the balance that was read last; returns the balance that it reads, if any."""


def _read(rows: QuerySet[Any]) -> Decimal | None:
    return rows.values_list("balance", flat=True).first()


def _locked(**options: bool) -> _Action:
    return lambda pk, seen: _read(accounts(pk).select_for_update(**options))


_ACTIONS: Mapping[str, _Action] = MappingProxyType(
    {
        "read": lambda pk, seen: _read(accounts(pk)),
        "lock": _locked(),
        "lock no key": _locked(no_key=True),
        "lock nowait": _locked(nowait=True),
        "lock skip locked": _locked(skip_locked=True),
        "write": lambda pk, seen: accounts(pk).update(balance=seen + 1),
        "add": lambda pk, seen: accounts(pk).update(balance=F("balance") + 2),
        "write if unchanged": lambda pk, seen: accounts(pk).filter(balance=seen).update(balance=seen + 4),
        "delete": lambda pk, seen: accounts(pk).delete(),
        "open": lambda pk, seen: open_account(8, user=accounts(pk).values_list("user", flat=True).first()),
    }
)
_BLOCKS: Mapping[str, Callable[[], AbstractContextManager[Any]]] = MappingProxyType(
    {
        "autocommit": nullcontext,
        "atomic": transaction.atomic,
        "repeatable read": partial(isolated_transaction, isolation_level="repeatable read"),
        "serializable": partial(isolated_transaction, isolation_level="serializable"),
    }
)


def random_race(number: int) -> Scenario:
    """Return the race with this number, the same one in every process. Every end of it counts as right."""
    draws = Random(number)  # noqa: S311 - no secret
    return Scenario(set_up=two_accounts, actors=[_program(draws), _program(draws)], invariant=bool, observe=balances)


def _program(draws: Random) -> Callable[[list[Any]], None]:
    name = draws.choice(list(_BLOCKS))
    # Outside of transactions Django locks nothing.
    names = [each for each in _ACTIONS if name != "autocommit" or not each.startswith("lock")]
    actions = [(draws.choice(names), draws.randrange(2)) for _ in range(draws.randint(1, _MOST))]

    def run(pks: list[Any]) -> None:
        seen = Decimal(0)
        with _BLOCKS[name]():
            for action, which in actions:
                found = _ACTIONS[action](pks[which], seen)
                seen = found if isinstance(found, Decimal) else seen

    return run
