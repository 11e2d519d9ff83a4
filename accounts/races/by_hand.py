"""Races of plain Django by hand: locks that are taken or forgotten, and single statements instead of a lock."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import F

from accounts.models import Account
from accounts.races.rows import (
    RaceList,
    accounts,
    balances,
    ends_with,
    make_user,
    one_account,
    pair,
    two_accounts,
    user_named,
    users,
)
from django_lockstep.lab.wording import gettext as _

RACES = RaceList()
# Each actor adds 10 to an account with 100.
adds_ten = partial(RACES.of, set_up=one_account, invariant_of=ends_with(10), observe=balances)


@adds_ten("lock:then-read", _("Lock the row, then read it."))
def lock_then_read(pk: object) -> None:
    with transaction.atomic():
        # The locking SELECT itself reads: one that waits for it gets the row as the other one has committed it.
        balance = accounts(pk).select_for_update(no_key=True).get().balance
        accounts(pk).update(balance=balance + 10)


@adds_ten("lock:given-up-too-early", _("Lock and read, write after the transaction's end."), holds=False)
def lock_given_up_too_early(pk: object) -> None:
    with transaction.atomic():
        balance = accounts(pk).select_for_update(no_key=True).get().balance
    # COMMIT has released the lock: the other one may have locked and read the same balance by now.
    accounts(pk).update(balance=balance + 10)


@adds_ten("lock:never-taken", _("select_for_update() that is never evaluated locks nothing."), holds=False)
def lock_never_taken(pk: object) -> None:
    with transaction.atomic():
        locked = accounts(pk).select_for_update(no_key=True)
        balance = accounts(pk).get().balance
        # update() ignores the lock of its query set: it sends a plain UPDATE.
        locked.update(balance=balance + 10)


@adds_ten("lock:read-before", _("Read, lock, write what was computed from the old value."), holds=False)
def read_then_lock(pk: object) -> None:
    with transaction.atomic():
        balance = accounts(pk).get().balance
        # Waits for the other's COMMIT, and throws away what it could have read.
        accounts(pk).select_for_update(no_key=True).get()
        accounts(pk).update(balance=balance + 10)


@adds_ten("refresh:locked", _("Read again under the row's lock, then write what was computed from that."))
def refresh_with_lock(pk: object) -> None:
    account = accounts(pk).get()
    with transaction.atomic():
        account.refresh_from_db(from_queryset=Account.objects.select_for_update(no_key=True))
        accounts(pk).update(balance=account.balance + 10)


@adds_ten("refresh:unlocked", _("Read again without a lock, however shortly before the write."), holds=False)
def refresh_without_lock(pk: object) -> None:
    account = accounts(pk).get()
    with transaction.atomic():
        # The other one may read the same value here, before either writes.
        account.refresh_from_db()
        accounts(pk).update(balance=account.balance + 10)


@adds_ten(
    "on-commit:write",
    _("Write in an on_commit() callback, which runs after COMMIT has released the lock."),
    holds=False,
)
def write_on_commit(pk: object) -> None:
    with transaction.atomic():
        account = accounts(pk).select_for_update(no_key=True).get()
        transaction.on_commit(lambda: accounts(pk).update(balance=account.balance + 10))


def lock_parent(*, no_key: bool) -> Callable[[Any], Any]:
    """Return an actor that locks the owner."""

    def actor(pk: object) -> None:
        with transaction.atomic():
            # FOR UPDATE conflicts with the FOR KEY SHARE by which the server checks a foreign key; FOR NO KEY UPDATE
            # does not (PostgreSQL documentation, table 13.3).
            users().select_for_update(no_key=no_key).get(pk=pk)

    return actor


def insert_child(pk: Any) -> None:
    """Open an account for the owner; Django's foreign keys are checked at COMMIT."""
    with transaction.atomic():
        Account.objects.create(user_id=pk)


RACES += [
    pair(
        f"child-insert:{name}",
        text,
        actor=[lock_parent(no_key=name == "no-key"), insert_child],
        set_up=make_user,
        invariant=lambda pk: Account.objects.filter(user_id=pk).count() == 1,
        waits=frozenset(waits),
    )
    for name, text, waits in (
        ("for-update", _("A row that refers to a locked one is inserted, and waits at COMMIT."), ["COMMIT"]),
        ("no-key", _("A row that refers to a locked one is inserted, and does not wait."), []),
    )
]


def withdraw_if_covered(index: int, *, lock: bool) -> Callable[[list[Any]], None]:
    """Return a withdrawal of 200 from one account that checks the sum of both, with or without locking both."""

    def withdraw(pks: list[Any]) -> None:
        with transaction.atomic():
            # Ordered, so that both lock the two rows in the same order: one waits, and there is no deadlock.
            both = Account.objects.filter(pk__in=pks).order_by("pk")
            read = both.select_for_update(no_key=True) if lock else both
            if sum(account.balance for account in read) >= 200:
                accounts(pks[index]).update(balance=F("balance") - 200)

    return withdraw


RACES += [
    pair(
        f"write-skew:{name}",
        text,
        actor=[withdraw_if_covered(index, lock=lock) for index in range(2)],
        set_up=two_accounts,
        invariant=lambda pks: sum(Account.objects.filter(pk__in=pks).values_list("balance", flat=True)) >= 0,
        observe=balances,
        holds=lock,
    )
    for name, lock, text in (
        ("unlocked", False, _("Each withdrawal is covered by the sum that it read; both together are not.")),
        ("locked", True, _("The same, with every row locked that the decision rests on.")),
    )
]


claims_once = partial(
    RACES.of,
    set_up=two_accounts,
    invariant=lambda pks: not Account.objects.filter(overdraft_limit__gt=1001).exists(),
)


@claims_once("queue:skip-locked", _("Two workers claim tasks with select_for_update(skip_locked=True)."))
def claim_unlocked_task(pks: list[Any]) -> None:
    with transaction.atomic():
        # Without SKIP LOCKED the second worker would wait for the first one's COMMIT before it looks at the next task.
        task = Account.objects.filter(balance=100).order_by("pk").select_for_update(skip_locked=True).first()
        if task is not None:
            accounts(task.pk).update(balance=50, overdraft_limit=F("overdraft_limit") + 1)


@claims_once("queue:unlocked", _("Two workers claim the first free task that they see."), holds=False)
def claim_first_task(pks: list[Any]) -> None:
    with transaction.atomic():
        task = Account.objects.filter(balance=100).order_by("pk").first()
        if task is not None:
            accounts(task.pk).update(balance=50, overdraft_limit=F("overdraft_limit") + 1)


# One statement instead of a lock: computed, guarded, unique.

RACES += [
    pair(
        "apply-many:opposite",
        _("Many changes in one transaction, which locks the accounts in primary-key order whatever theirs is."),
        actor=[
            lambda pks: Account.apply_many([(pks[0], 10), (pks[1], -10)]) and None,
            lambda pks: Account.apply_many([(pks[1], -10), (pks[0], 10)]) and None,
        ],
        set_up=two_accounts,
        invariant_of=lambda number: lambda pks: balances(pks) == [f"{100 + 10 * number}.00", f"{100 - 10 * number}.00"],
        observe=balances,
        code=(Account.apply_many,),
    )
]


@RACES.of(
    "f-expression:add",
    _("UPDATE ... SET balance = balance + 10: no update is lost."),
    set_up=one_account,
    invariant_of=ends_with(10),
    observe=balances,
)
def add_with_f(pk: object) -> None:
    # After a wait the server computes with the newest version of the row (PostgreSQL documentation, 13.2.1).
    accounts(pk).update(balance=F("balance") + 10)


takes_80_once = partial(
    RACES.of, set_up=one_account, invariant=lambda pk: accounts(pk).get().balance == 20, observe=balances
)


@takes_80_once(
    "f-expression:check-before", _("F() makes the arithmetic safe, not the rule checked before."), holds=False
)
def check_then_subtract(pk: object) -> None:
    with transaction.atomic():
        if accounts(pk).get().balance >= 80:
            # The limit is raised so that the CHECK constraint does not refuse the second one, and hide the race.
            accounts(pk).update(balance=F("balance") - 80, overdraft_limit=100)


@takes_80_once("f-expression:check-in-where", _("Check the rule in the WHERE of the UPDATE."))
def subtract_where_covered(pk: object) -> None:
    accounts(pk).filter(balance__gte=80).update(balance=F("balance") - 80)


@RACES.of(
    "save:update-fields",
    _("Read, then save(update_fields=...) of a VersionedModel: the later save is refused."),
    set_up=one_account,
    observe=balances,
)
def read_then_save(pk: object) -> None:
    account = accounts(pk).get()
    account.balance += 10
    account.save(update_fields=["balance"])


ADA = user_named("ada")
makes_one_user = partial(
    RACES.of, set_up=lambda: None, invariant=lambda nothing: bool(users().filter(**ADA).count() == 1)
)


@makes_one_user("get-or-create:unique", _("get_or_create() with a unique constraint."))
def get_or_create_user(nothing: object) -> None:
    users().get_or_create(**ADA)


@makes_one_user(
    "get-or-create:inside-atomic",
    _("Call get_or_create() in a transaction: the failed INSERT is rolled back to a savepoint."),
)
def get_or_create_user_inside_a_transaction(nothing: object) -> None:
    with transaction.atomic():
        # The loser's INSERT waits for the winner's COMMIT and fails; get_or_create() then reads the winner's row, which
        # READ COMMITTED shows it.
        user, _ = users().get_or_create(**ADA)
        Account.objects.create(user=user)


@makes_one_user("update-or-create:unique", _("update_or_create() with a unique constraint."))
def update_or_create_user(nothing: object) -> None:
    users().update_or_create(**ADA, defaults={"password": "!"})


@makes_one_user("check-then-create:unique", _("exists() before create(): the constraint refuses one."))
def check_then_create_user(nothing: object) -> None:
    with transaction.atomic():
        if not users().filter(**ADA).exists():
            users().create(**ADA)


@RACES.of(
    "get-or-create:not-unique",
    _("get_or_create() without a unique constraint."),
    set_up=one_account,
    invariant=lambda pk: Account.objects.filter(overdraft_limit=7).count() == 1,
    holds=False,
)
def get_or_create_account(pk: object) -> None:
    # Both look and find nothing, and there is no row yet that one of them could lock.
    Account.objects.get_or_create(user=accounts(pk).get().user, overdraft_limit=7)
