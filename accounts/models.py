"""The account: pessimistic class methods, which lock the row first, and optimistic instance methods, which do not.

The methods are plain Django and define what a change means; what one reads is what runs, unless a project chooses
another engine (`accounts.engine`). Importable without the app being installed: `AbstractAccount` is the base of a
project's own account model.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any, Self

from django.apps import apps
from django.db import models, router, transaction
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from accounts.abstract import AbstractBaseAccount, AbstractEntry, validate_key
from accounts.amounts import parse_amount
from accounts.batches import AppliedChange, BalanceChange, apply_changes, parse_changes
from accounts.engine import compilable
from django_lockstep.errors import translated_errors
from django_lockstep.locking.durations import Duration
from django_lockstep.locking.rows import lock_rows, lock_timeout, row_lock
from django_lockstep.locking.versions import seen_version

__all__ = ["AbstractAccount", "AbstractEntry"]


class AbstractAccount(AbstractBaseAccount):
    """An account whose balance changes by entries: both kinds of methods increase the version, and so can be mixed."""

    class Meta(AbstractBaseAccount.Meta):
        abstract = True

    # Pessimistic: the second caller waits for the first one's COMMIT, then reads what it wrote.

    @classmethod
    @compilable
    def deposit(
        cls,
        pk: object,
        amount: object,
        *,
        idempotency_key: str | None = None,
        nowait: bool = False,
        timeout: Duration | None = None,
        using: str | None = None,
    ) -> Self:
        """Lock the row ``FOR NO KEY UPDATE``, add the amount to the balance, write the entry; return the account.

        Opens a transaction, or joins the caller's, whose end then releases the lock. Waits for the row without a time
        limit, at most ``timeout`` (timedelta or seconds), or not at all (``nowait``). A second call with the same
        ``idempotency_key`` and amount changes nothing and returns the account as the first call left it, also when both
        run at the same time. Correct at every isolation level.

        Raises `InvalidAmount` before any SQL, ``DoesNotExist``, `IdempotencyKeyReused`, `LockNotAvailable`,
        `DeadlockDetected`, and above READ COMMITTED `SerializationFailure`.
        """
        amount, key, using = parse_amount(amount), validate_key(idempotency_key), using or router.db_for_write(cls)
        with translated_errors(model=cls, pk=pk), transaction.atomic(using=using):
            with lock_timeout(timeout, using=using, never_waits=nowait):
                # FOR NO KEY UPDATE: rows that refer to this one may be inserted meanwhile.
                account = cls.rows(using).select_for_update(**row_lock(cls, using=using, nowait=nowait)).get(pk=pk)
            if not account.replay_if_done(amount, key, using=using):
                account.balance, account.entry_count = account.balance_after(amount), account.entry_count + 1
                account.save(using=using)  # also increases the version, so that optimistic writers see the change
                account.record(amount, idempotency_key=key, using=using)
        return account

    @classmethod
    @compilable
    def withdraw(
        cls,
        pk: object,
        amount: object,
        *,
        idempotency_key: str | None = None,
        nowait: bool = False,
        timeout: Duration | None = None,
        using: str | None = None,
    ) -> Self:
        """Lock the row, check the overdraft limit, subtract the amount, write the entry; return the account.

        As `deposit`, and raises `InsufficientFunds` below the overdraft limit.
        """
        amount, key, using = parse_amount(amount), validate_key(idempotency_key), using or router.db_for_write(cls)
        with translated_errors(model=cls, pk=pk), transaction.atomic(using=using):
            with lock_timeout(timeout, using=using, never_waits=nowait):
                # FOR NO KEY UPDATE: rows that refer to this one may be inserted meanwhile.
                account = cls.rows(using).select_for_update(**row_lock(cls, using=using, nowait=nowait)).get(pk=pk)
            if not account.replay_if_done(-amount, key, using=using):
                account.balance = account.balance_after(-amount)  # the check: raises InsufficientFunds
                account.entry_count += 1
                account.save(using=using)
                account.record(-amount, idempotency_key=key, using=using)
        return account

    @classmethod
    def transfer(
        cls,
        source_pk: object,
        target_pk: object,
        amount: object,
        *,
        idempotency_key: str | None = None,
        nowait: bool = False,
        timeout: Duration | None = None,
        using: str | None = None,
    ) -> tuple[Self, Self]:
        """Move the amount between two accounts in one transaction; return (source, target).

        Both rows are locked in primary-key order, so that opposite transfers never deadlock. The idempotency key is
        the source account's. Raises as `withdraw` does, and ``ValueError`` for one account as source and target.
        """
        amount, key, using = parse_amount(amount), validate_key(idempotency_key), using or router.db_for_write(cls)
        source_pk, target_pk = cls.parse_transfer_keys(source_pk, target_pk)
        with translated_errors(model=cls, pk=[source_pk, target_pk]), transaction.atomic(using=using):
            locked = lock_rows(cls, [source_pk, target_pk], nowait=nowait, timeout=timeout, using=using)
            # The locks were taken in primary-key order; the source must come first for the check and the key.
            source, target = sorted(locked, key=lambda account: account.pk != source_pk)
            if not source.replay_if_done(-amount, key, to=target, using=using):
                transfer = uuid.uuid4()
                for account, change, used in ((source, -amount, key), (target, amount, None)):
                    account.balance = account.balance_after(change)  # the check: raises InsufficientFunds
                    account.entry_count += 1
                    account.save(using=using)
                    account.record(change, idempotency_key=used, transfer=transfer, using=using)
        return source, target

    # Optimistic: no lock is taken before the write; the second caller gets False, and can read again and decide again.

    @compilable
    def try_deposit(self, amount: object, *, idempotency_key: str | None = None) -> bool:
        """Add the amount if the row still has this instance's version, in one guarded UPDATE, with its entry.

        True: done, and the instance has the new balance and version. False: another writer was first, nothing was
        written, and the instance is unchanged (call ``refresh_from_db()`` and decide again; `retry_on_conflict` does
        both in a loop). A key that was used for the same amount returns True with the balance and version of that time.

        Opens a transaction, or a savepoint in the caller's. Above READ COMMITTED raises `SerializationFailure` where it
        would return False. Raises `InvalidAmount` before any SQL, ``DoesNotExist`` where the row is gone,
        `IdempotencyKeyReused`.
        """
        amount, key, using = parse_amount(amount), validate_key(idempotency_key), self._write_alias()
        with translated_errors(model=type(self), pk=self.pk), transaction.atomic(using=using):
            if self.replay_if_done(amount, key, using=using):
                return True
            # The version when the instance was read, even if the attribute was assigned since.
            seen, balance, count, now = seen_version(self), self.balance_after(amount), self.entry_count, timezone.now()
            written = {"balance": balance, "version": seen + 1, "entry_count": count + 1, "updated_at": now}
            # Check and write are one statement: between two of them another session could write. The row stays locked
            # until COMMIT, so that the entry below is about this balance.
            if not self.own_row(using=using).filter(version=seen).update(**written):
                return self.lost_to_another_writer(using=using)
            self.accept_written(**written, using=using)
            self.record(amount, idempotency_key=key, using=using)
        return True

    @compilable
    def try_withdraw(self, amount: object, *, idempotency_key: str | None = None) -> bool:
        """Subtract the amount; as `try_deposit`, and raises `InsufficientFunds` if this instance is up to date."""
        amount, key, using = parse_amount(amount), validate_key(idempotency_key), self._write_alias()
        with translated_errors(model=type(self), pk=self.pk), transaction.atomic(using=using):
            if self.replay_if_done(-amount, key, using=using):
                return True
            seen, count, now = seen_version(self), self.entry_count, timezone.now()
            # A stale balance proves nothing: the current one may cover the amount.
            if not self.covers(amount) and self.is_outdated(using=using):
                return False
            balance = self.balance_after(-amount)  # the check: raises InsufficientFunds
            written = {"balance": balance, "version": seen + 1, "entry_count": count + 1, "updated_at": now}
            if not self.own_row(using=using).filter(version=seen).update(**written):
                return self.lost_to_another_writer(using=using)
            self.accept_written(**written, using=using)
            self.record(-amount, idempotency_key=key, using=using)
        return True

    @classmethod
    def apply_many(
        cls, changes: Iterable[BalanceChange | tuple[Any, Any]], *, using: str | None = None
    ) -> list[AppliedChange]:
        """Apply many changes of many accounts, all or none, each with its entry; return the results in the same order.

        ``changes`` are `BalanceChange` or pairs of a primary key and a signed amount. All accounts are locked ``FOR NO
        KEY UPDATE`` in primary-key order. Changes of one account apply in the order given, and each intermediate
        balance must respect the overdraft limit. A change whose ``idempotency_key`` was used before, in the database or
        in the list, is skipped, and its result says so. Opens a transaction or joins the caller's; waits for the rows
        without a time limit.

        Raises `InvalidAmount` or ``ValueError`` before any SQL, ``DoesNotExist``, `InsufficientFunds`,
        `IdempotencyKeyReused`, each with the ``index`` of the change, `DeadlockDetected`, and above READ COMMITTED
        `SerializationFailure`.
        """
        # Parsed here: an iterator could be read only once, by one of two engines.
        parsed, using = parse_changes(cls, changes), using or router.db_for_write(cls)
        return apply_changes(cls, parsed, using=using) if parsed else []


# A project with its own account model imports this module without installing the app and its tables.
if apps.is_installed("accounts"):

    class Account(AbstractAccount):
        """A user's account; all behaviour is in `AbstractAccount`."""

        class Meta(AbstractAccount.Meta):
            verbose_name = _("account")
            verbose_name_plural = _("accounts")

    class Entry(AbstractEntry):
        """One change of an `Account`."""

        # No separate index: the index of (account, id) serves lookups by account.
        account = models.ForeignKey(
            Account, on_delete=models.PROTECT, related_name="entries", db_index=False, verbose_name=_("account")
        )

        class Meta(AbstractEntry.Meta):
            # A fixed name, so that the app's migration fits under any label.
            indexes = [models.Index(fields=["account", "id"], name="accounts_entry_chain")]
            verbose_name = _("entry")
            verbose_name_plural = _("entries")

    __all__ += ["Account", "Entry"]
