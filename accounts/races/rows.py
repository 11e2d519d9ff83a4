"""Races of two in a few lines each, and their rows: one or two accounts, and their owner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, TypeVar

from django.contrib.auth import get_user_model

from accounts.contention import contention
from accounts.models import AbstractAccount, Account
from django_lockstep.lab.races import Race, repeat_roles
from django_lockstep.lab.scenario import ActorFunction, Scenario

A = TypeVar("A", bound=Callable[..., Any])


def pair(
    name: str,
    text: str,
    *,
    actor: ActorFunction | Sequence[ActorFunction],
    set_up: Callable[[], Any],
    invariant: ActorFunction | None = None,
    invariant_of: Callable[[int], ActorFunction] | None = None,
    observe: ActorFunction | None = None,
    **expected: Any,
) -> Race:
    """Return the race of one callable against itself, or of several in turn, with what is expected of it.

    ``invariant_of`` makes the invariant where it depends on how many actors there are.
    """
    roles = [actor] * 2 if callable(actor) else list(actor)
    scenario = Scenario(set_up=set_up, actors=roles, invariant=invariant, observe=observe)
    build = repeat_roles(scenario, invariant_of=invariant_of)
    return Race(name=name, text=text, scenario=build(len(roles)), **{"many": build, **expected})


class RaceList(list[Race]):
    """The races of a module, in the order in which it defines them."""

    def of(self, name: str, text: str, **parts: Any) -> Callable[[A], A]:
        """Add the race of the decorated actor against itself; ``parts`` as of `pair`."""

        def add(actor: A) -> A:
            self.append(pair(name, text, actor=actor, **parts))
            return actor

        return add


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


def balances(fixture: object) -> list[str]:
    """Return the balances in the order of keys."""
    return [str(balance) for balance in Account.objects.order_by("pk").values_list("balance", flat=True)]
