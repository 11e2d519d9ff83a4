"""One statement instead of a lock: computed, guarded, unique."""

from __future__ import annotations

from functools import partial

from django.db import transaction
from django.db.models import F

from accounts.models import Account
from accounts.races.rows import (
    RaceList,
    accounts,
    balances,
    ends_with,
    one_account,
    pair,
    set_up_nothing,
    two_accounts,
    user_named,
    users,
)

__all__ = ["RACES"]

RACES = RaceList()


RACES.append(
    pair(
        "apply-many:opposite",
        "Many changes in one transaction, which locks the accounts in primary-key order whatever theirs is.",
        actor=[
            lambda pks: Account.apply_many([(pks[0], 10), (pks[1], -10)]) and None,
            lambda pks: Account.apply_many([(pks[1], -10), (pks[0], 10)]) and None,
        ],
        set_up=two_accounts,
        invariant_of=lambda number: lambda pks: balances(pks) == [f"{100 + 10 * number}.00", f"{100 - 10 * number}.00"],
        observe=balances,
        code=(Account.apply_many,),
    )
)


@RACES.of("f-expression:add", set_up=one_account, invariant_of=ends_with(10), observe=balances)
def add_with_f(pk: object) -> None:
    """UPDATE ... SET balance = balance + 10: no update is lost."""
    # After a wait the server computes with the newest version of the row (PostgreSQL documentation, 13.2.1).
    accounts(pk).update(balance=F("balance") + 10)


takes_80_once = partial(
    RACES.of, set_up=one_account, invariant=lambda pk: accounts(pk).get().balance == 20, observe=balances
)


@takes_80_once("f-expression:check-before", holds=False)
def check_then_subtract(pk: object) -> None:
    """F() makes the arithmetic safe, not the rule checked before."""
    with transaction.atomic():
        if accounts(pk).get().balance >= 80:
            # The limit is raised so that the CHECK constraint does not refuse the second one, and hide the race.
            accounts(pk).update(balance=F("balance") - 80, overdraft_limit=100)


@takes_80_once("f-expression:check-in-where")
def subtract_where_covered(pk: object) -> None:
    """Check the rule in the WHERE of the UPDATE."""
    accounts(pk).filter(balance__gte=80).update(balance=F("balance") - 80)


@RACES.of("save:update-fields", set_up=one_account, observe=balances)
def read_then_save(pk: object) -> None:
    """Read, then save(update_fields=...) of a VersionedModel: the later save is refused."""
    account = accounts(pk).get()
    account.balance += 10
    account.save(update_fields=["balance"])


ADA = user_named("ada")
makes_one_user = partial(
    RACES.of, set_up=set_up_nothing, invariant=lambda nothing: bool(users().filter(**ADA).count() == 1)
)


@makes_one_user("get-or-create:unique")
def get_or_create_user(nothing: object) -> None:
    """get_or_create() with a unique constraint."""
    users().get_or_create(**ADA)


@makes_one_user("get-or-create:inside-atomic")
def get_or_create_user_inside_a_transaction(nothing: object) -> None:
    """Call get_or_create() in a transaction: the failed INSERT is rolled back to a savepoint."""
    with transaction.atomic():
        # The loser's INSERT waits for the winner's COMMIT and fails; get_or_create() then reads the winner's row, which
        # READ COMMITTED shows it.
        user, _ = users().get_or_create(**ADA)
        Account.objects.create(user=user)


@makes_one_user("update-or-create:unique")
def update_or_create_user(nothing: object) -> None:
    """update_or_create() with a unique constraint."""
    users().update_or_create(**ADA, defaults={"password": "!"})


@makes_one_user("check-then-create:unique")
def check_then_create_user(nothing: object) -> None:
    """exists() before create(): the constraint refuses one."""
    with transaction.atomic():
        if not users().filter(**ADA).exists():
            users().create(**ADA)


@RACES.of(
    "get-or-create:not-unique",
    set_up=one_account,
    invariant=lambda pk: Account.objects.filter(overdraft_limit=7).count() == 1,
    holds=False,
)
def get_or_create_account(pk: object) -> None:
    """get_or_create() without a unique constraint."""
    # Both look and find nothing, and there is no row yet that one of them could lock.
    Account.objects.get_or_create(user=accounts(pk).get().user, overdraft_limit=7)
