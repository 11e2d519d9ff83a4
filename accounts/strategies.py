"""Every way to change a balance, side by side, from the most common mistake to the strictest transaction.

Each class can be read on its own: ``change`` says how the row is read, what is locked, and what guards the write. It
runs in `transaction.atomic()` unless ``transaction`` says otherwise; a transfer calls it for both accounts in one.
Where a strategy ``retries``, a conflict repeats the whole transaction (`accounts.binding`). The first two lose updates.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from decimal import Decimal
from types import MappingProxyType
from typing import Any

from django.db import NotSupportedError, connections, transaction
from django.db.models import F
from django.utils.translation import gettext_noop as _

from accounts.amounts import TOO_LARGE
from accounts.binding import Strategy
from accounts.concurrency_model import save_with_django_concurrency
from accounts.contention import contention
from accounts.models import AbstractAccount
from django_lockstep.errors import StaleVersionError
from django_lockstep.locking.retry import report_conflict
from django_lockstep.locking.transactions import isolated_transaction

__all__ = ["STRATEGIES", "Strategy"]


class Naive(Strategy):
    """Read, compute, write: the last writer overwrites the others."""

    name = "naive"
    summary = _("Reads the balance, computes in Python and writes it back; it loses updates.")
    safe = False
    in_key_order = False  # opposite transfers deadlock

    def change(self, pk: Any, amount: Decimal) -> AbstractAccount:
        account = self.accounts.get(pk=pk)
        balance = account.balance_after(amount)
        # A write between the SELECT above and this UPDATE is overwritten: that is the bug, where neither a lock nor the
        # isolation level prevents it. The version is raised all the same, by F(), so that writers that compare it
        # notice this one.
        self.accounts.filter(pk=pk).update(version=F("version") + 1, **self.values(balance))
        return self.write_entry(account, amount)

    def transaction(self) -> AbstractContextManager[Any]:
        """None: a failure between the two changes of a transfer leaves half of it."""
        return nullcontext()


class NaiveAtomic(Naive):
    """The same in a transaction, the most common mistake: READ COMMITTED lets both read the old balance."""

    name = "naive_atomic"
    summary = _("The same inside atomic(): all or nothing, but still unprotected, so it loses updates as well.")

    def transaction(self) -> AbstractContextManager[Any]:
        """Like most strategies: all or nothing, which says nothing about what others write meanwhile."""
        return transaction.atomic(self.alias)


class Pessimistic(Strategy):
    """Lock, then read: the second caller waits and reads what the first one wrote."""

    name = "pessimistic"
    summary = _("Locks the row with select_for_update() before it reads the balance; others wait.")

    def change(self, pk: Any, amount: Decimal) -> AbstractAccount:
        """Lock and read, then overwrite."""
        # The SELECT that locks must be the one that reads: after a wait it returns the row as the other session
        # committed it, while a value read before the lock would be as old as in `naive`.
        account = self.accounts.select_for_update(no_key=True).get(pk=pk)
        balance = account.balance_after(amount)
        self.accounts.filter(pk=pk).update(version=F("version") + 1, **self.values(balance))
        return self.write_entry(account, amount)


class PessimisticNowait(Strategy):
    """Lock or fail at once, and retry later: no transaction ever waits while it holds other locks."""

    name = "pessimistic_nowait"
    summary = _(
        "Locks the row with nowait; where another transaction has it locked, fails at once and retries after a pause."
    )
    retries = True

    def change(self, pk: Any, amount: Decimal) -> AbstractAccount:
        """Lock and read without waiting, then overwrite."""
        # A refusal (55P03) aborts the transaction, so that another attempt must begin another one.
        account = self.accounts.select_for_update(no_key=True, nowait=True).get(pk=pk)
        balance = account.balance_after(amount)
        self.accounts.filter(pk=pk).update(version=F("version") + 1, **self.values(balance))
        return self.write_entry(account, amount)


class Optimistic(Strategy):
    """Read, compute, write only if the version is unchanged: the second caller reads again and retries."""

    name = "optimistic"
    summary = _("Reads the version with the balance and writes only where it is still the same; otherwise retries.")
    retries = True

    def change(self, pk: Any, amount: Decimal) -> AbstractAccount:
        """Read, then write if unchanged."""
        account = self.accounts.get(pk=pk)
        balance, seen = account.balance_after(amount), account.version
        # The version is compared in the UPDATE itself. An UPDATE that waits for the row evaluates its WHERE again
        # on the newest version (READ COMMITTED; PostgreSQL documentation, 13.2.1) and then matches nothing.
        if not self.accounts.filter(pk=pk, version=seen).update(version=seen + 1, **self.values(balance)):
            raise StaleVersionError(model=self.model, pk=pk, expected=seen)
        return self.write_entry(account, amount)


class Adaptive(Pessimistic, Optimistic):
    """Optimistic on rows with few conflicts, pessimistic on the others and for transfers."""

    name = "adaptive"
    summary = _(
        "Writes if the version is unchanged, as long as conflicts on this row are rare; otherwise locks it first."
    )
    retries = False

    def change(self, pk: Any, amount: Decimal) -> AbstractAccount:
        """Write optimistically or lock, by the row's recent conflict rate; lock after a conflict."""
        row = (self.model, self.alias, pk)
        if not contention.prefers_lock(row):
            try:
                account = Optimistic.change(self, pk, amount)
            except StaleVersionError as error:
                contention.record(row, conflict=True)
                # Nothing was written, and the lock below reads the row as it is now: the transaction can go on.
                report_conflict(error, attempt=1, wait=0.0)
            else:
                contention.record(row, conflict=False)
                return account
        return super().change(pk, amount)

    def move(self, amounts: Mapping[Any, Decimal]) -> None:
        """Lock both in primary-key order."""
        for pk, amount in sorted(amounts.items()):
            super().change(pk, amount)


class DjangoConcurrency(Strategy):
    """The version check of django-concurrency's save()."""

    name = "django_concurrency"
    summary = _("Leaves the version check to django-concurrency's own save(), and retries on RecordModifiedError.")
    retries = True
    package = "concurrency"

    def change(self, pk: Any, amount: Decimal) -> AbstractAccount:
        account = self.accounts.get(pk=pk)
        account.book(amount)
        # That package raises the version in save(), which therefore must not be done here.
        save_with_django_concurrency(account, using=self.alias)
        account.record(amount)
        return account


class ConditionalUpdate(Strategy):
    """No read before the write: the database computes the balance and checks the limit in the UPDATE."""

    name = "conditional_update"
    summary = _("Lets one UPDATE with F() expressions compute the balance and check the overdraft limit.")
    retries = True

    def change(self, pk: Any, amount: Decimal) -> AbstractAccount:
        """Update, then read the result."""
        # The rule belongs in the WHERE of the same UPDATE: a check before it would be about an older balance. Each sign
        # has its own rule: the overdraft limit, or what the column can hold.
        rule = {"balance__lt": TOO_LARGE - amount} if amount > 0 else {"balance__gte": -amount - F("overdraft_limit")}
        rows = self.accounts.filter(pk=pk, **rule)
        changed = rows.update(version=F("version") + 1, **self.values(F("balance") + amount))
        account = self.accounts.get(pk=pk)
        # The UPDATE says only that it changed nothing; why is found in what the SELECT returned, which may be newer
        # than what the UPDATE saw.
        if not changed:
            account.balance_after(amount)  # raises what is not allowed
            raise StaleVersionError(
                "The balance was changed after the UPDATE refused the amount, and now allows it", model=self.model
            )
        account.record(amount)
        return account


class Serializable(NaiveAtomic):
    """The naive code at the isolation level that makes it correct: the database tracks what was read."""

    name = "serializable"
    summary = _("Runs the naive code at SERIALIZABLE, where the database aborts it if other transactions interfered.")
    safe = True
    in_key_order = True  # UPDATEs take row locks at this level, too
    retries = True

    def transaction(self) -> AbstractContextManager[Any]:
        """SERIALIZABLE, and never inside another transaction, whose level would count."""
        return isolated_transaction(isolation_level="serializable", using=self.alias)


class Advisory(NaiveAtomic):
    """A lock on the account's key instead of its row: correct only where every writer takes this lock.

    A session that changes the account in another way, by row locks, versions or plain SQL, does not wait for it, and
    its write is overwritten: money is lost. ``safe`` is about this strategy alone.
    """

    name = "advisory"
    summary = _("Takes a transaction-level advisory lock on the account's key before it reads the balance.")
    safe = True
    in_key_order = True
    needs_all_writers = True

    def change(self, pk: Any, amount: Decimal) -> AbstractAccount:
        """Lock the key, then run the naive code."""
        self.lock_key(pk)
        return super().change(pk, amount)

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
