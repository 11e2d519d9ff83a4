"""One statement instead of a lock: computed, guarded, unique."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from django.db import transaction
from django.db.models import F

from accounts.models import Account
from accounts.races.race import pair
from accounts.races.rows import accounts, balances, one_account, set_up_nothing, two_accounts, user_named, users
from django_lockstep.lab.races import Race

__all__ = ["races"]

ADA = "ada"


def add_with_f(pk: object) -> None:
    """Let the database compute."""
    # After a wait the server computes with the newest version of the row (PostgreSQL documentation, 13.2.1).
    accounts(pk).update(balance=F("balance") + 10)


def check_then_subtract(pk: object) -> None:
    """Check in Python, subtract with F(): the arithmetic is right, the check is old."""
    with transaction.atomic():
        if accounts(pk).get().balance >= 80:
            # The limit is raised so that the CHECK constraint does not refuse the second one, and hide the race.
            accounts(pk).update(balance=F("balance") - 80, overdraft_limit=100)


def subtract_where_covered(pk: object) -> None:
    """Check and subtract in one statement."""
    accounts(pk).filter(balance__gte=80).update(balance=F("balance") - 80)


def read_then_save(pk: object) -> None:
    """Read, then save only one field; save() adds the version and refuses a stale one."""
    account = accounts(pk).get()
    account.balance += 10
    account.save(update_fields=["balance"])


def get_or_create_user(made: object) -> None:
    """Create the user unless it exists; the name is unique."""
    users().get_or_create(**user_named(ADA))


def get_or_create_user_inside_a_transaction(made: object) -> None:
    """Call get_or_create() inside a transaction: the failed INSERT is rolled back to a savepoint."""
    with transaction.atomic():
        # The loser's INSERT waits for the winner's COMMIT and fails; get_or_create() then reads the winner's row, which
        # READ COMMITTED shows it.
        user, _ = users().get_or_create(**user_named(ADA))
        Account.objects.create(user=user)


def update_or_create_user(made: object) -> None:
    """Create the user, or lock and update it."""
    users().update_or_create(**user_named(ADA), defaults={"password": "!"})


def check_then_create_user(made: object) -> None:
    """Check first, then insert: the second one gets an IntegrityError despite the check."""
    with transaction.atomic():
        if not users().filter(**user_named(ADA)).exists():
            users().create(**user_named(ADA))


def get_or_create_account(pk: object) -> None:
    """Make an account with a limit of 7 unless there is one; nothing makes that unique."""
    # Both look and find nothing, and there is no row yet that one of them could lock.
    Account.objects.get_or_create(user=accounts(pk).get().user, overdraft_limit=7)


def one_user(made: object) -> bool:
    """Whether the user is there once."""
    return bool(users().filter(**user_named(ADA)).count() == 1)


def one_account_with_the_limit(pk: object) -> bool:
    """Whether the account was made once."""
    return Account.objects.filter(overdraft_limit=7).count() == 1


def apply_in(order: slice) -> Callable[[list[Any]], None]:
    """Return an actor that changes both accounts in one transaction, listed in this order."""

    def apply(pks: list[Any]) -> None:
        Account.apply_many([(pk, amount) for pk, amount in list(zip(pks, (10, -10), strict=True))[order]])

    return apply


def races() -> Iterator[Race]:
    yield pair(
        "apply-many:opposite",
        "Many changes in one transaction, which locks the accounts in primary-key order whatever theirs is.",
        actor=[apply_in(slice(None)), apply_in(slice(None, None, -1))],
        set_up=two_accounts,
        invariant_of=lambda number: lambda pks: balances(pks) == [f"{100 + 10 * number}.00", f"{100 - 10 * number}.00"],
        observe=balances,
    )
    yield pair(
        "f-expression:add",
        "UPDATE ... SET balance = balance + 10: no update is lost.",
        actor=add_with_f,
        set_up=one_account,
        invariant_of=lambda number: lambda pk: accounts(pk).get().balance == 100 + 10 * number,
        observe=balances,
    )
    for name, actor, text, holds in (
        ("check-before", check_then_subtract, "F() makes the arithmetic safe, not the rule checked before.", False),
        ("check-in-where", subtract_where_covered, "The rule stands in the WHERE of the UPDATE.", True),
    ):
        yield pair(
            f"f-expression:{name}",
            text,
            actor=actor,
            set_up=one_account,
            invariant=lambda pk: accounts(pk).get().balance == 20,
            observe=balances,
            holds=holds,
        )
    yield pair(
        "save:update-fields",
        "Read, then save(update_fields=...) of a VersionedModel: the later save is refused.",
        actor=read_then_save,
        set_up=one_account,
        observe=balances,
    )
    yield from made_once()


def made_once() -> Iterator[Race]:
    """Yield the ways to make a row unless it is there."""
    for name, maker, text in (
        ("get-or-create:unique", get_or_create_user, "get_or_create() with a unique constraint."),
        ("get-or-create:inside-atomic", get_or_create_user_inside_a_transaction, "The same inside a transaction."),
        ("update-or-create:unique", update_or_create_user, "update_or_create() with a unique constraint."),
        ("check-then-create:unique", check_then_create_user, "exists() before create(): the constraint refuses one."),
    ):
        yield pair(name, text, actor=maker, set_up=set_up_nothing, invariant=one_user)
    yield pair(
        "get-or-create:not-unique",
        "get_or_create() without a unique constraint.",
        actor=get_or_create_account,
        set_up=one_account,
        invariant=one_account_with_the_limit,
        holds=False,
    )
