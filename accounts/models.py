"""The account: pessimistic class methods, which lock the row first, and optimistic instance methods, which do not.

Plain Django: what stands here is what runs, unless a project chooses another engine (`accounts.engine`). Importable
without the app being installed, for projects with an account model of their own.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any, Self

from asgiref.sync import sync_to_async
from django.apps import apps
from django.db import models, router, transaction
from django.utils.translation import gettext_lazy as _

from accounts.abstract import AbstractBaseAccount
from accounts.batches import AppliedChange, ChangeLike, apply_changes, parse_changes
from accounts.decorators import Amount, optimistic, pessimistic
from accounts.entries import AbstractEntry
from django_lockstep.locking.durations import Duration
from django_lockstep.locking.rows import lock_rows

__all__ = ["AbstractAccount", "AbstractEntry"]


class AbstractAccount(AbstractBaseAccount):
    """An account whose balance changes by entries: both kinds of methods increase the version, and so can be mixed."""

    class Meta(AbstractBaseAccount.Meta):
        abstract = True

    # Pessimistic: the second caller waits for the first one's COMMIT, then reads what it wrote.
    @classmethod
    @pessimistic
    def deposit(
        cls,
        pk: object,
        amount: Amount,
        *,
        idempotency_key: str | None = None,
        nowait: bool = False,
        timeout: Duration | None = None,
        using: str | None = None,
    ) -> Self:
        """Lock the row ``FOR NO KEY UPDATE``, add the amount to the balance, write the entry; return the account.

        Opens a transaction, or joins the caller's, whose end then releases the lock. Waits for the row without limit,
        at most ``timeout`` (timedelta or seconds; the decorator sets it), or not at all (``nowait``). A second call
        with the same key and amount changes nothing and returns the account as the first one left it. Raises
        `InvalidAmount` before any SQL, ``DoesNotExist``, `IdempotencyKeyReused`, `LockNotAvailable`,
        `DeadlockDetected`, `SerializationFailure`.
        """
        with transaction.atomic(using):
            # NO KEY: rows that refer to this one, as its entries do, may be inserted meanwhile.
            account = cls.rows(using).select_for_update(no_key=True, nowait=nowait).get(pk=pk)
            if not account.replay_idempotent(amount, idempotency_key):
                account.book(amount)
                account.save(using=using)  # also increases the version, so that optimistic writers see the change
                account.record(amount, idempotency_key)
        return account

    @classmethod
    @pessimistic
    def withdraw(
        cls,
        pk: object,
        amount: Amount,
        *,
        idempotency_key: str | None = None,
        nowait: bool = False,
        timeout: Duration | None = None,
        using: str | None = None,
    ) -> Self:
        """Lock the row, then subtract the amount; as `deposit`, and raises `InsufficientFunds` below the limit."""
        with transaction.atomic(using):
            account = cls.rows(using).select_for_update(no_key=True, nowait=nowait).get(pk=pk)
            if not account.replay_idempotent(-amount, idempotency_key):
                account.book(-amount)  # under the lock, so that the balance it checks is the current one
                account.save(using=using)
                account.record(-amount, idempotency_key)
        return account

    @classmethod
    @pessimistic
    def transfer(
        cls,
        source_pk: object,
        target_pk: object,
        amount: Amount,
        *,
        idempotency_key: str | None = None,
        nowait: bool = False,
        timeout: Duration | None = None,
        using: str | None = None,
    ) -> tuple[Self, Self]:
        """Move the amount in one transaction, both rows locked in primary-key order; return (source, target).

        The idempotency key is the source account's. Raises as `withdraw` does, and ``ValueError`` for the same account.
        """
        cls.require_two(source_pk, target_pk)
        with transaction.atomic(using):
            # In primary-key order, whichever is the source: opposite transfers never deadlock.
            locked = lock_rows(cls.rows(using), [source_pk, target_pk], nowait=nowait)
            source, target = sorted(locked, key=lambda account: account.pk != source_pk)
            if not source.replay_idempotent(-amount, idempotency_key, to=target):
                transfer = uuid.uuid4()
                for account, change, key in ((source, -amount, idempotency_key), (target, amount, None)):
                    account.book(change)
                    account.save(using=using)
                    account.record(change, key, transfer=transfer)
        return source, target

    # Optimistic: no lock is taken before the write; the second caller gets False, and can read again and decide again.
    @optimistic
    def try_deposit(self, amount: Amount, *, idempotency_key: str | None = None) -> bool:
        """Add the amount if the row still has this instance's version, in one guarded UPDATE, with its entry.

        True: done, and the instance has the new balance and version. False: another writer was first and nothing was
        written: call ``refresh_from_db()`` and decide again. A key that was used for the same amount returns True with
        the balance and version of that time. Opens a transaction, or a savepoint in the caller's. Raises as `deposit`
        does, and above READ COMMITTED `SerializationFailure` instead of returning False.
        """
        with transaction.atomic(self._state.db):
            if not self.replay_idempotent(amount, idempotency_key):
                written = {**self.values_after(amount), "version": self.version + 1}
                # One statement compares and writes: between two of them another session could write.
                if not self.own_row().filter(version=self.version).update(**written):
                    self.raise_if_deleted()
                    return False
                self.accept_written(written)
                self.record(amount, idempotency_key)
        return True

    @optimistic
    def try_withdraw(self, amount: Amount, *, idempotency_key: str | None = None) -> bool:
        """Subtract the amount; as `try_deposit`, and raises `InsufficientFunds` if this instance is up to date."""
        with transaction.atomic(self._state.db):
            if not self.replay_idempotent(-amount, idempotency_key):
                # A stale balance proves nothing: the current one may cover the amount.
                if not self.covers(amount) and self.is_outdated():
                    return False
                written = {**self.values_after(-amount), "version": self.version + 1}
                if not self.own_row().filter(version=self.version).update(**written):
                    self.raise_if_deleted()
                    return False
                self.accept_written(written)
                self.record(-amount, idempotency_key)
        return True

    # Async: each is the whole transaction, in the thread of synchronous code, where Django's connection is.
    @classmethod
    async def adeposit(cls, pk: object, amount: Amount, **options: Any) -> Self:
        """Do as `deposit` does."""
        return await sync_to_async(cls.deposit)(pk, amount, **options)

    @classmethod
    async def awithdraw(cls, pk: object, amount: Amount, **options: Any) -> Self:
        """Do as `withdraw` does."""
        return await sync_to_async(cls.withdraw)(pk, amount, **options)

    @classmethod
    async def atransfer(cls, source_pk: object, target_pk: object, amount: Amount, **options: Any) -> tuple[Self, Self]:
        """Do as `transfer` does."""
        return await sync_to_async(cls.transfer)(source_pk, target_pk, amount, **options)

    async def atry_deposit(self, amount: Amount, *, idempotency_key: str | None = None) -> bool:
        """Do as `try_deposit` does."""
        return await sync_to_async(self.try_deposit)(amount, idempotency_key=idempotency_key)

    async def atry_withdraw(self, amount: Amount, *, idempotency_key: str | None = None) -> bool:
        """Do as `try_withdraw` does."""
        return await sync_to_async(self.try_withdraw)(amount, idempotency_key=idempotency_key)

    @classmethod
    def apply_many(cls, changes: Iterable[ChangeLike], *, using: str | None = None) -> list[AppliedChange]:
        """Apply many changes of many accounts, all or none; see `accounts.batches.apply_changes`."""
        parsed = parse_changes(cls, changes)
        return apply_changes(cls, parsed, using=using or router.db_for_write(cls)) if parsed else []


if apps.is_installed("accounts"):

    class Account(AbstractAccount):
        """A user's account."""

        class Meta(AbstractAccount.Meta):
            verbose_name = _("account")
            verbose_name_plural = _("accounts")

    class Entry(AbstractEntry):
        """One change of an `Account`."""

        account = models.ForeignKey(
            Account, on_delete=models.PROTECT, related_name="entries", db_index=False, verbose_name=_("account")
        )

        class Meta(AbstractEntry.Meta):
            # Serves lookups by account, too. A fixed name, so that the app's migration fits under any label.
            indexes = [models.Index(fields=["account", "id"], name="accounts_entry_chain")]
            verbose_name = _("entry")
            verbose_name_plural = _("entries")

    __all__ += ["Account", "Entry"]
