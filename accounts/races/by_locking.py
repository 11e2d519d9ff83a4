"""Locks in plain Django: taken, forgotten, released too early, needed by a child row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from django.db import transaction
from django.db.models import F

from accounts.models import Account
from accounts.races.race import pair
from accounts.races.rows import accounts, balances, make_user, one_account, two_accounts, users
from django_lockstep.lab.races import Race

__all__ = ["races"]

ONE_ACCOUNT: Mapping[str, Any] = {
    "set_up": one_account,
    "invariant_of": lambda number: lambda pk: accounts(pk).get().balance == 100 + 10 * number,
    "observe": balances,
}
"""The common parts of races in which each actor adds 10 to an account with 100."""


def lock_then_read(pk: object) -> None:
    """Lock, then read, then write: correct."""
    with transaction.atomic():
        # The locking SELECT itself reads: one that waits for it gets the row as the other one has committed it.
        balance = accounts(pk).select_for_update(no_key=True).get().balance
        accounts(pk).update(balance=balance + 10)


def lock_given_up_too_early(pk: object) -> None:
    """Write after the block that held the lock."""
    with transaction.atomic():
        balance = accounts(pk).select_for_update(no_key=True).get().balance
    # COMMIT has released the lock: the other one may have locked and read the same balance by now.
    accounts(pk).update(balance=balance + 10)


def lock_never_taken(pk: object) -> None:
    """Make a query set that would lock, and never evaluate it."""
    with transaction.atomic():
        locked = accounts(pk).select_for_update(no_key=True)
        balance = accounts(pk).get().balance
        # update() ignores the lock of its query set: it sends a plain UPDATE.
        locked.update(balance=balance + 10)


def read_then_lock(pk: object) -> None:
    """Lock a row after reading it, and write a value computed from the earlier read."""
    with transaction.atomic():
        balance = accounts(pk).get().balance
        # Waits for the other's COMMIT, and throws away what it could have read.
        accounts(pk).select_for_update(no_key=True).get()
        accounts(pk).update(balance=balance + 10)


def refresh_with_lock(pk: object) -> None:
    """Read again with the lock: ``refresh_from_db`` takes the query set that locks."""
    account = accounts(pk).get()
    with transaction.atomic():
        account.refresh_from_db(from_queryset=Account.objects.select_for_update(no_key=True))
        accounts(pk).update(balance=account.balance + 10)


def refresh_without_lock(pk: object) -> None:
    """Read again without a lock, which only makes the window smaller."""
    account = accounts(pk).get()
    with transaction.atomic():
        # The other one may read the same value here, before either writes.
        account.refresh_from_db()
        accounts(pk).update(balance=account.balance + 10)


def write_on_commit(pk: object) -> None:
    """Write in a callback, which runs after COMMIT has released the lock."""
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


def total_is_covered(pks: list[Any]) -> bool:
    """Whether the owner's accounts together are not below zero."""
    return sum(Account.objects.filter(pk__in=pks).values_list("balance", flat=True)) >= 0


def claim(*, lock: bool) -> Callable[[list[Any]], None]:
    """Return a worker that takes the first account with a balance of 100 and counts its claim in the limit."""

    def work(pks: list[Any]) -> None:
        with transaction.atomic():
            waiting = Account.objects.filter(balance=100).order_by("pk")
            # Without SKIP LOCKED the second worker would wait for the first one's COMMIT before it looks at the next
            # task.
            task = (waiting.select_for_update(skip_locked=True) if lock else waiting).first()
            if task is not None:
                accounts(task.pk).update(balance=50, overdraft_limit=F("overdraft_limit") + 1)

    return work


def claimed_once(pks: list[Any]) -> bool:
    """Whether no task was claimed by two workers."""
    return not Account.objects.filter(overdraft_limit__gt=1001).exists()


def races() -> Iterator[Race]:
    for name, text, actor, holds in (
        ("lock:then-read", "Lock the row, then read it.", lock_then_read, True),
        (
            "lock:given-up-too-early",
            "Lock and read, write after the transaction's end.",
            lock_given_up_too_early,
            False,
        ),
        ("lock:never-taken", "select_for_update() that is never evaluated locks nothing.", lock_never_taken, False),
        ("lock:read-before", "Read, lock, write what was computed from the old value.", read_then_lock, False),
        ("refresh:locked", "refresh_from_db() with select_for_update().", refresh_with_lock, True),
        ("refresh:unlocked", "refresh_from_db() right before the write.", refresh_without_lock, False),
        ("on-commit:write", "The lock is gone when on_commit() callbacks run.", write_on_commit, False),
    ):
        yield pair(name, text, actor=actor, holds=holds, **ONE_ACCOUNT)
    yield from child_inserts()
    yield from two_account_races()


def child_inserts() -> Iterator[Race]:
    """Yield the insertion of a row that refers to a locked one, by the strength of the lock."""
    for name, no_key, waits in (("for-update", False, {"COMMIT"}), ("no-key", True, set())):
        yield pair(
            f"child-insert:{name}",
            f"A row that refers to a locked one is inserted, and {'does not wait' if no_key else 'waits at COMMIT'}.",
            actor=[lock_parent(no_key=no_key), insert_child],
            set_up=make_user,
            invariant=lambda pk: Account.objects.filter(user_id=pk).count() == 1,
            waits=frozenset(waits),
        )


def two_account_races() -> Iterator[Race]:
    """Yield write skew and the queue, each with and without the lock."""
    for name, lock, text in (
        ("unlocked", False, "Each withdrawal is covered by the sum that it read; both together are not."),
        ("locked", True, "The same, with every row locked that the decision rests on."),
    ):
        yield pair(
            f"write-skew:{name}",
            text,
            actor=[withdraw_if_covered(0, lock=lock), withdraw_if_covered(1, lock=lock)],
            set_up=two_accounts,
            invariant=total_is_covered,
            observe=balances,
            holds=lock,
        )
    for name, lock, text in (
        ("skip-locked", True, "Two workers claim tasks with select_for_update(skip_locked=True)."),
        ("unlocked", False, "Two workers claim the first free task that they see."),
    ):
        yield pair(
            f"queue:{name}", text, actor=claim(lock=lock), set_up=two_accounts, invariant=claimed_once, holds=lock
        )
