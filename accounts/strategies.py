"""Every way to change a balance, side by side, from the most common mistake to the strictest transaction.

Each class can be read on its own: how the row is read, what is locked, what guards the write, and what is retried.
What all share is in `accounts.binding`. The first two lose updates; the others name the guarantee that they rely on.

These methods are what runs, on any database. For those decorated by `compilable` another engine may have a counterpart
with the same guard and the same retries; see `accounts.engine`.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Any

from django.db import NotSupportedError, connections, transaction
from django.db.models import F

from accounts.amounts import TOO_LARGE
from accounts.binding import Strategy
from accounts.concurrency_model import save_with_django_concurrency
from accounts.contention import contention
from accounts.engine import compilable
from accounts.models import AbstractAccount
from django_lockstep.errors import StaleVersionError
from django_lockstep.locking.retry import report_conflict, retry_on_conflict
from django_lockstep.locking.transactions import isolated_transaction

__all__ = ["STRATEGIES", "Strategy"]

# One policy for all strategies that retry, so that their figures can be compared; many attempts, because on a hot row
# only one writer wins each time. It retries the whole transaction, with random pauses that grow.
retried = retry_on_conflict(attempts=1000, wait_initial=0.001, wait_max=0.1, timeout=60)


class Naive(Strategy):
    """Read, compute, write: the last writer overwrites the others."""

    name = "naive"
    summary = "Reads the balance, computes in Python and writes it back; it loses updates."
    guarantee = "None: the UPDATE does not depend on what was read."
    safe = False

    def change(self, pk: object, amount: Decimal) -> AbstractAccount:
        account = self.accounts.get(pk=pk)
        balance = account.balance_after(amount)
        # A write between the SELECT above and this UPDATE is overwritten: that is the bug, where neither a lock nor the
        # isolation level prevents it. The version is raised all the same, by F(), so that writers that compare it
        # notice this one.
        self.accounts.filter(pk=pk).update(balance=balance, version=F("version") + 1, **self.entry_columns)
        return self.write_entry(account, amount, balance=balance)

    def move(self, amounts: Mapping[Any, Decimal]) -> None:
        """Change one after the other; a failure between them leaves half a transfer."""
        for pk, amount in amounts.items():
            self.change(pk, amount)


class NaiveAtomic(Naive):
    """The same in a transaction, the most common mistake: READ COMMITTED lets both read the old balance."""

    name = "naive_atomic"
    summary = "The same inside atomic(): all or nothing, but still unprotected, so it loses updates as well."
    guarantee = "Atomicity only: at READ COMMITTED other sessions may write between the SELECT and the UPDATE."

    def change(self, pk: object, amount: Decimal) -> AbstractAccount:
        """Read, then overwrite, in one transaction."""
        with transaction.atomic(using=self.alias):
            return super().change(pk, amount)

    def move(self, amounts: Mapping[Any, Decimal]) -> None:
        """Change both in one transaction, in the order given: opposite transfers deadlock."""
        with transaction.atomic(using=self.alias):
            for pk, amount in amounts.items():
                super().change(pk, amount)


class Pessimistic(Strategy):
    """Lock, then read: the second caller waits and reads what the first one wrote."""

    name = "pessimistic"
    summary = "Locks the row with select_for_update() before it reads the balance; others wait."
    guarantee = "SELECT ... FOR NO KEY UPDATE: a row lock held until COMMIT, taken in primary-key order."

    @compilable
    def change(self, pk: object, amount: Decimal) -> AbstractAccount:
        """Lock and read, then overwrite."""
        with transaction.atomic(using=self.alias):
            return self._locked_change(pk, amount)

    def move(self, amounts: Mapping[Any, Decimal]) -> None:
        """Lock both in primary-key order, so that opposite transfers never deadlock."""
        with transaction.atomic(using=self.alias):
            for pk, amount in sorted(amounts.items()):
                self._locked_change(pk, amount)

    def _locked_change(self, pk: object, amount: Decimal) -> AbstractAccount:
        # The SELECT that locks must be the one that reads: after a wait it returns the row as the other session
        # committed it, while a value read before the lock would be as old as in `naive`.
        account = self.accounts.select_for_update(no_key=self.no_key).get(pk=pk)
        balance = account.balance_after(amount)
        self.accounts.filter(pk=pk).update(balance=balance, version=F("version") + 1, **self.entry_columns)
        return self.write_entry(account, amount, balance=balance)


class PessimisticNowait(Strategy):
    """Lock or fail at once, and retry later: no transaction ever waits while it holds other locks."""

    name = "pessimistic_nowait"
    summary = (
        "Locks the row with nowait; where another transaction has it locked, fails at once and retries after a pause."
    )
    guarantee = "SELECT ... FOR NO KEY UPDATE NOWAIT: the same row lock, refused (55P03) instead of awaited."

    @retried
    @compilable
    def change(self, pk: object, amount: Decimal) -> AbstractAccount:
        """Lock and read without waiting, then overwrite."""
        with transaction.atomic(using=self.alias):
            return self._locked_change(pk, amount)

    @retried
    def move(self, amounts: Mapping[Any, Decimal]) -> None:
        """Lock both without waiting, then overwrite."""
        with transaction.atomic(using=self.alias):
            for pk, amount in sorted(amounts.items()):
                self._locked_change(pk, amount)

    def _locked_change(self, pk: object, amount: Decimal) -> AbstractAccount:
        # A refusal (55P03) aborts the transaction, so that `retried` must begin another one.
        account = self.accounts.select_for_update(no_key=self.no_key, nowait=True).get(pk=pk)
        balance = account.balance_after(amount)
        self.accounts.filter(pk=pk).update(balance=balance, version=F("version") + 1, **self.entry_columns)
        return self.write_entry(account, amount, balance=balance)


class Optimistic(Strategy):
    """Read, compute, write only if the version is unchanged: the second caller reads again and retries."""

    name = "optimistic"
    summary = "Reads the version with the balance and writes only where it is still the same; otherwise retries."
    guarantee = "UPDATE ... WHERE version = the one read: the check and the write are one statement."

    @retried
    @compilable
    def change(self, pk: object, amount: Decimal) -> AbstractAccount:
        """Read, then write if unchanged."""
        with transaction.atomic(using=self.alias):
            return self._guarded_change(pk, amount)

    @retried
    def move(self, amounts: Mapping[Any, Decimal]) -> None:
        """Write both if unchanged, in primary-key order, because each UPDATE locks its row until COMMIT."""
        with transaction.atomic(using=self.alias):
            for pk, amount in sorted(amounts.items()):
                self._guarded_change(pk, amount)

    def _guarded_change(self, pk: object, amount: Decimal) -> AbstractAccount:
        account = self.accounts.get(pk=pk)
        balance = account.balance_after(amount)
        # The version is compared in the UPDATE itself. An UPDATE that waits for the row evaluates its WHERE again on
        # the newest version (READ COMMITTED; PostgreSQL documentation, 13.2.1) and then matches nothing.
        unchanged = self.accounts.filter(pk=pk, version=account.version)
        if not unchanged.update(balance=balance, version=account.version + 1, **self.entry_columns):
            raise StaleVersionError(model=self.model, pk=pk, expected=account.version)
        return self.write_entry(account, amount, balance=balance)


class Adaptive(Pessimistic):
    """Optimistic on rows with few conflicts, pessimistic on the others and for transfers."""

    name = "adaptive"
    summary = "Writes if the version is unchanged, as long as conflicts on this row are rare; otherwise locks it first."
    guarantee = "UPDATE ... WHERE version = the one read, or SELECT ... FOR NO KEY UPDATE: either alone is enough."

    @compilable
    def change(self, pk: object, amount: Decimal) -> AbstractAccount:
        """Write optimistically or lock, by the row's recent conflict rate; lock after a conflict."""
        row = (self.model, self.alias, pk)
        if contention.prefers_lock(row):
            return super().change(pk, amount)
        with transaction.atomic(using=self.alias):
            account = self.accounts.get(pk=pk)
            balance = account.balance_after(amount)
            unchanged = self.accounts.filter(pk=pk, version=account.version)
            if unchanged.update(balance=balance, version=account.version + 1, **self.entry_columns):
                contention.record(row, conflict=False)
                return self.write_entry(account, amount, balance=balance)
        # Outside of the atomic block above, which has ended: the lock must not wait inside a failed attempt.
        contention.record(row, conflict=True)
        report_conflict(StaleVersionError(model=self.model, pk=pk, expected=account.version), attempt=1, wait=0.0)
        return super().change(pk, amount)


class DjangoConcurrency(Strategy):
    """The version check of django-concurrency's save()."""

    name = "django_concurrency"
    summary = "Leaves the version check to django-concurrency's own save(), and retries on RecordModifiedError."
    guarantee = "UPDATE ... WHERE version = the one read, sent by save() after a SELECT that the row is there."

    @retried
    def change(self, pk: object, amount: Decimal) -> AbstractAccount:
        with transaction.atomic(using=self.alias):
            return self._save(pk, amount)

    @retried
    def move(self, amounts: Mapping[Any, Decimal]) -> None:
        """Save both, in primary-key order."""
        with transaction.atomic(using=self.alias):
            for pk, amount in sorted(amounts.items()):
                self._save(pk, amount)

    def _save(self, pk: object, amount: Decimal) -> AbstractAccount:
        account = self.accounts.get(pk=pk)
        # That package raises the version in save(), which therefore must not be done here.
        account.balance, account.entry_count = account.balance_after(amount), account.entry_count + 1
        save_with_django_concurrency(account, using=self.alias)
        account.record(amount, using=self.alias)
        return account


class ConditionalUpdate(Strategy):
    """No read before the write: the database computes the balance and checks the limit in the UPDATE."""

    name = "conditional_update"
    summary = "Lets one UPDATE with F() expressions compute the balance and check the overdraft limit."
    guarantee = "UPDATE ... WHERE balance + amount >= -overdraft_limit, evaluated again on the row it waited for."

    # `retried` inside `compilable`, unlike above: a compiled statement has no conflicts, only the method may retry.
    @compilable
    @retried
    def change(self, pk: object, amount: Decimal) -> AbstractAccount:
        """Update, then read the result."""
        with transaction.atomic(using=self.alias):
            return self._conditional_change(pk, amount)

    @retried
    def move(self, amounts: Mapping[Any, Decimal]) -> None:
        """Update both, in primary-key order."""
        with transaction.atomic(using=self.alias):
            for pk, amount in sorted(amounts.items()):
                self._conditional_change(pk, amount)

    def _conditional_change(self, pk: object, amount: Decimal) -> AbstractAccount:
        # The rule belongs in the WHERE of the same UPDATE: a check before it would be about an older balance. Each sign
        # has its own rule: the overdraft limit, or what the column can hold.
        if amount < 0:
            allowed = self.accounts.filter(pk=pk, balance__gte=-amount - F("overdraft_limit"))
        else:
            allowed = self.accounts.filter(pk=pk, balance__lt=TOO_LARGE - amount)
        changed = allowed.update(balance=F("balance") + amount, version=F("version") + 1, **self.entry_columns)
        account = self.accounts.get(pk=pk)
        # The UPDATE says only that it changed nothing; why is found in what the SELECT returned, which may be newer
        # than what the UPDATE saw.
        if not changed:
            account.balance_after(amount)  # raises what is not allowed
            raise StaleVersionError(
                "The balance was changed after the UPDATE refused the amount, and now allows it", model=self.model
            )
        account.record(amount, using=self.alias)
        return account


class Serializable(Naive):
    """The naive code at the isolation level that makes it correct: the database tracks what was read."""

    name = "serializable"
    summary = "Runs the naive code at SERIALIZABLE, where the database aborts it if other transactions interfered."
    guarantee = "SERIALIZABLE: one of two transactions that could not have run one after the other fails (40001)."
    safe = True

    @retried
    @compilable
    def change(self, pk: object, amount: Decimal) -> AbstractAccount:
        """Read, then overwrite, serializably."""
        with isolated_transaction(isolation_level="serializable", using=self.alias):
            return super().change(pk, amount)

    @retried
    def move(self, amounts: Mapping[Any, Decimal]) -> None:
        """Change both in primary-key order, serializably."""
        # Sorted below although nothing is locked here in advance: the UPDATEs take row locks at this level, too, and
        # would deadlock in opposite orders.
        with isolated_transaction(isolation_level="serializable", using=self.alias):
            for pk, amount in sorted(amounts.items()):
                super().change(pk, amount)


class Advisory(Naive):
    """A lock on the account's key instead of its row: correct only where every writer takes this lock.

    A session that changes the account in another way, by row locks, versions or plain SQL, does not wait for it, and
    its write is overwritten: money is lost. ``safe`` is about this strategy alone.
    """

    name = "advisory"
    summary = "Takes a transaction-level advisory lock on the account's key before it reads the balance."
    guarantee = "pg_advisory_xact_lock: held until COMMIT, but only sessions that take the same lock wait for it."
    safe = True
    needs_all_writers = True

    @compilable
    def change(self, pk: object, amount: Decimal) -> AbstractAccount:
        """Lock the key, then run the naive code."""
        with transaction.atomic(using=self.alias):
            self.lock_key(pk)
            return super().change(pk, amount)

    def move(self, amounts: Mapping[Any, Decimal]) -> None:
        """Lock each key, in primary-key order, before its account is read."""
        with transaction.atomic(using=self.alias):
            for pk, amount in sorted(amounts.items()):
                self.lock_key(pk)
                super().change(pk, amount)

    def lock_key(self, pk: object) -> None:
        """Take the transaction's advisory lock on the account. Raises ``NotSupportedError`` on other databases."""
        connection = connections[self.alias]
        if connection.vendor != "postgresql":
            raise NotSupportedError(f"The strategy 'advisory' requires PostgreSQL, not {connection.vendor}")
        # The table in the name keeps accounts of different models with the same key apart.
        name = f"accounts.strategies.advisory:{self.model._meta.db_table}:{pk}"
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [name])


STRATEGIES: Mapping[str, Strategy] = MappingProxyType(
    {
        kind.name: kind()
        for kind in (
            Naive,
            NaiveAtomic,
            Pessimistic,
            PessimisticNowait,
            Optimistic,
            Adaptive,
            DjangoConcurrency,
            ConditionalUpdate,
            Serializable,
            Advisory,
        )
    }
)
"""Every strategy by name, for `Account`; ``STRATEGIES[name].bound(model=Wallet)`` is the one for another model."""
