"""Every way to change a balance, side by side, from the commonest mistake to the strictest transaction.

All share one signature and the same ledger; what differs is how the row is read and what guards the write. Read from
top to bottom: the first two lose updates, each of the others names the guarantee that it relies on.

Each class is the plain way, as a project would write it, on any database. Where it can, on PostgreSQL outside of an
open transaction, the function of the same name in `accounts.fast` does it instead, with SQL that was compiled once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from types import MappingProxyType
from typing import Any, ClassVar

from django.db import connections, router, transaction
from django.db.models import F, QuerySet
from django.utils import timezone

from accounts.abstract import AbstractAccount
from accounts.amounts import TOO_LARGE, parse_amount
from accounts.concurrency_twin import save_with_django_concurrency
from accounts.fast import FAST, advisory_lock, contention, retried
from accounts.statements import ledger_of
from django_lockstep.errors import StaleVersionError
from django_lockstep.locking.retry import tell
from django_lockstep.locking.transactions import commits_each_statement
from django_lockstep.locking.transactions import transaction as isolated_transaction

__all__ = ["STRATEGIES", "Strategy"]


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way to change a balance, bound to an account model."""

    account_model: type[AbstractAccount] | None = None
    """The accounts that it changes; None means `Account`, which need not be installed where another model is used."""
    using: str | None = None
    """The database; None asks the router."""
    compiled: bool = True
    """Whether to send SQL that was compiled once where that can be (`accounts.fast`); False is as written here."""

    name: ClassVar[str]
    """What commands and reports call it."""
    summary: ClassVar[str]
    """What it does, in a sentence."""
    guarantee: ClassVar[str]
    """What in the SQL keeps concurrent changes apart."""
    safe: ClassVar[bool] = True
    """Whether it claims to lose no update."""

    def bound(
        self, *, model: type[AbstractAccount] | None = None, using: str | None = None, compiled: bool | None = None
    ) -> Strategy:
        """Return the same strategy for another account model, or another database, or with SQL compiled or not."""
        return replace(
            self,
            account_model=model or self.account_model,
            using=using or self.using,
            compiled=self.compiled if compiled is None else compiled,
        )

    @property
    def model(self) -> type[AbstractAccount]:
        """The accounts that it changes."""
        if self.account_model is None:
            from accounts.models import Account

            return Account
        return self.account_model

    def deposit(self, pk: object, amount: object) -> AbstractAccount:
        """Add the amount; return the account as written. Raises as `Account.deposit` does."""
        return self._change(pk, parse_amount(amount))

    def withdraw(self, pk: object, amount: object) -> AbstractAccount:
        """Take the amount off; return the account as written. Raises as `Account.withdraw` does."""
        return self._change(pk, -parse_amount(amount))

    def transfer(self, source_pk: object, target_pk: object, amount: object) -> None:
        """Move the amount between two accounts. Raises as `Account.transfer` does."""
        moved = parse_amount(amount)
        if self._key(source_pk) == self._key(target_pk):
            raise ValueError(f"A transfer needs two accounts, but source and target are both {source_pk!r}")
        self.move({self._key(source_pk): -moved, self._key(target_pk): moved})

    def _change(self, pk: object, amount: Decimal) -> AbstractAccount:
        pk, using = self._key(pk), self.alias
        fast = FAST.get(self.name) if self.compiled and commits_each_statement(connections[using]) else None
        ledger = fast and ledger_of(self.model, using)
        account = fast(ledger, pk, amount) if fast and ledger else None
        # Where the fast way did nothing, this one says why.
        return account or self.change(pk, amount)

    def change(self, pk: object, amount: Decimal) -> AbstractAccount:
        """Add a signed amount to one account."""
        raise NotImplementedError

    def move(self, amounts: dict[Any, Decimal]) -> None:
        """Add signed amounts to several accounts, all or none."""
        raise NotImplementedError

    @property
    def alias(self) -> str:
        """The database alias that it writes to."""
        return self.using or router.db_for_write(self.model)

    @property
    def accounts(self) -> QuerySet[AbstractAccount]:
        """The accounts, unlocked."""
        return self.model._base_manager.using(self.alias)

    @property
    def no_key(self) -> bool:
        """Whether the database has ``FOR NO KEY UPDATE``, which lets rows that refer to the account be inserted."""
        return connections[self.alias].features.has_select_for_no_key_update

    def overwrite(self, account: AbstractAccount, amount: Decimal) -> AbstractAccount:
        """Write the balance computed from what was read, whatever the row holds by now, and the entry.

        This is the UPDATE that ``save()`` sends for a model without a version: right only while something else keeps
        others away from the row.
        """
        balance = account.balance_after(amount)
        rows = self.accounts.filter(pk=account.pk)
        rows.update(balance=balance, version=F("version") + 1, updated_at=timezone.now())
        account.balance, account.version = balance, account.version + 1
        self._record(account, amount)
        return account

    def write_if_unchanged(self, account: AbstractAccount, amount: Decimal) -> bool:
        """Write the balance computed from what was read, and the entry, if nobody wrote the row since."""
        balance, seen = account.balance_after(amount), account.version
        rows = self.accounts.filter(pk=account.pk, version=seen)
        if not rows.update(balance=balance, version=seen + 1, updated_at=timezone.now()):
            return False
        account.balance, account.version = balance, seen + 1
        self._record(account, amount)
        return True

    def _record(self, account: AbstractAccount, amount: Decimal) -> None:
        with account._written_to(self.alias):
            account.record(amount)

    def _key(self, pk: object) -> Any:
        return self.model._meta.pk.to_python(pk)


class Naive(Strategy):
    """Read, compute, write: whoever writes last overwrites the others."""

    name = "naive"
    summary = "Reads the balance, computes in Python and writes it back: the article's example, and it loses updates."
    guarantee = "None: nothing connects the UPDATE with what was read."
    safe = False

    def change(self, pk: object, amount: Decimal) -> AbstractAccount:
        """Read, then overwrite."""
        return self.overwrite(self.accounts.get(pk=pk), amount)

    def move(self, amounts: dict[Any, Decimal]) -> None:
        """Change one after the other; a failure in between leaves half a transfer."""
        for pk, amount in amounts.items():
            self.change(pk, amount)


class NaiveAtomic(Strategy):
    """The same in a transaction, the commonest mistake: READ COMMITTED lets both read the old balance."""

    name = "naive_atomic"
    summary = "The same inside atomic(): all or nothing, but still unprotected, so it loses updates as well."
    guarantee = "Atomicity only: at READ COMMITTED nobody is kept from writing between the SELECT and the UPDATE."
    safe = False

    def change(self, pk: object, amount: Decimal) -> AbstractAccount:
        """Read, then overwrite, in one transaction."""
        with transaction.atomic(using=self.alias):
            return self.overwrite(self.accounts.get(pk=pk), amount)

    def move(self, amounts: dict[Any, Decimal]) -> None:
        """Change both in one transaction, in the order they come: opposite transfers deadlock."""
        with transaction.atomic(using=self.alias):
            for pk, amount in amounts.items():
                self.overwrite(self.accounts.get(pk=pk), amount)


class Pessimistic(Strategy):
    """Lock, then read: whoever comes second waits, and reads what the first one wrote."""

    name = "pessimistic"
    summary = "Locks the row with select_for_update() before it reads the balance; others wait their turn."
    guarantee = "SELECT ... FOR NO KEY UPDATE: a row lock held until COMMIT, taken in primary-key order."

    def change(self, pk: object, amount: Decimal) -> AbstractAccount:
        """Lock and read, then overwrite."""
        with transaction.atomic(using=self.alias):
            return self.overwrite(self.accounts.select_for_update(no_key=self.no_key).get(pk=pk), amount)

    def move(self, amounts: dict[Any, Decimal]) -> None:
        """Lock both in primary-key order, then overwrite."""
        with transaction.atomic(using=self.alias):
            locked = self.accounts.select_for_update(no_key=self.no_key).order_by("pk").in_bulk(list(amounts))
            for pk, amount in amounts.items():
                self.overwrite(_found(locked, pk, self.model), amount)


class PessimisticNowait(Strategy):
    """Lock or fail at once, and try again later: no transaction ever waits while it holds other locks."""

    name = "pessimistic_nowait"
    summary = "Locks the row with nowait; where somebody has it, gives up at once and retries after a pause."
    guarantee = "SELECT ... FOR NO KEY UPDATE NOWAIT: the same row lock, refused (55P03) instead of awaited."

    @retried
    def change(self, pk: object, amount: Decimal) -> AbstractAccount:
        """Lock and read without waiting, then overwrite."""
        with transaction.atomic(using=self.alias):
            return self.overwrite(self.accounts.select_for_update(no_key=self.no_key, nowait=True).get(pk=pk), amount)

    @retried
    def move(self, amounts: dict[Any, Decimal]) -> None:
        """Lock both without waiting, then overwrite."""
        with transaction.atomic(using=self.alias):
            rows = self.accounts.select_for_update(no_key=self.no_key, nowait=True).order_by("pk")
            locked = rows.in_bulk(list(amounts))
            for pk, amount in amounts.items():
                self.overwrite(_found(locked, pk, self.model), amount)


class Optimistic(Strategy):
    """Read, compute, write only if nobody else did: whoever comes second reads again."""

    name = "optimistic"
    summary = "Reads the version with the balance and writes only where it is still the same; otherwise retries."
    guarantee = "UPDATE ... WHERE version = the one read: the check and the write are one statement."

    @retried
    def change(self, pk: object, amount: Decimal) -> AbstractAccount:
        """Read, then write if unchanged."""
        with transaction.atomic(using=self.alias):
            return self._write(pk, amount)

    @retried
    def move(self, amounts: dict[Any, Decimal]) -> None:
        """Write both if unchanged, in primary-key order, because each UPDATE locks its row until COMMIT."""
        with transaction.atomic(using=self.alias):
            for pk, amount in sorted(amounts.items()):
                self._write(pk, amount)

    def _write(self, pk: object, amount: Decimal) -> AbstractAccount:
        account = self.accounts.get(pk=pk)
        if not self.write_if_unchanged(account, amount):
            raise StaleVersionError(model=self.model, pk=pk, expected=account.version)
        return account


class Adaptive(Pessimistic):
    """Optimistic while that goes well, pessimistic on the rows where it does not, and for two rows at once."""

    name = "adaptive"
    summary = "Writes if the version is unchanged, as long as that mostly works on this row; otherwise locks it first."
    guarantee = "UPDATE ... WHERE version = the one read, or SELECT ... FOR NO KEY UPDATE: either alone is enough."

    def change(self, pk: object, amount: Decimal) -> AbstractAccount:
        """Guess or lock, by what the last guesses on this row came to; lock after a guess that was wrong."""
        row = (self.model, self.alias, self._key(pk))
        if not contention.expected(row):
            with transaction.atomic(using=self.alias):
                account = self.accounts.get(pk=pk)
                written = self.write_if_unchanged(account, amount)
            contention.note(row, conflict=not written)
            if written:
                return account
            tell(StaleVersionError(model=self.model, pk=pk, expected=account.version), attempt=1, wait=0.0)
        with transaction.atomic(using=self.alias):
            return self.overwrite(self.accounts.select_for_update(no_key=self.no_key).get(pk=pk), amount)


class DjangoConcurrency(Strategy):
    """The same guard, kept by django-concurrency's save()."""

    name = "django_concurrency"
    summary = "Leaves the version check to django-concurrency's own save(), and retries on RecordModifiedError."
    guarantee = "UPDATE ... WHERE version = the one read, sent by save() after a SELECT that the row is there."

    @retried
    def change(self, pk: object, amount: Decimal) -> AbstractAccount:
        """Read, then save."""
        with transaction.atomic(using=self.alias):
            return self._save(pk, amount)

    @retried
    def move(self, amounts: dict[Any, Decimal]) -> None:
        """Save both, in primary-key order."""
        with transaction.atomic(using=self.alias):
            for pk, amount in sorted(amounts.items()):
                self._save(pk, amount)

    def _save(self, pk: object, amount: Decimal) -> AbstractAccount:
        account = self.accounts.get(pk=pk)
        account.balance = account.balance_after(amount)
        save_with_django_concurrency(account, using=self.alias)
        self._record(account, amount)
        return account


class ConditionalUpdate(Strategy):
    """No read before the write: the database computes, and checks the limit, in the UPDATE itself."""

    name = "conditional_update"
    summary = "Lets one UPDATE with F() expressions compute the balance and check the overdraft limit."
    guarantee = "UPDATE ... WHERE balance + amount >= -overdraft_limit, evaluated again on the row it waited for."

    @retried
    def change(self, pk: object, amount: Decimal) -> AbstractAccount:
        """Update, then read what it made."""
        with transaction.atomic(using=self.alias):
            return self._update(pk, amount)

    @retried
    def move(self, amounts: dict[Any, Decimal]) -> None:
        """Update both, in primary-key order."""
        with transaction.atomic(using=self.alias):
            for pk, amount in sorted(amounts.items()):
                self._update(pk, amount)

    def _update(self, pk: object, amount: Decimal) -> AbstractAccount:
        rows = self.accounts.filter(pk=pk)
        allowed = (
            {"balance__gte": -amount - F("overdraft_limit")} if amount < 0 else {"balance__lt": TOO_LARGE - amount}
        )
        changed = rows.filter(**allowed).update(
            balance=F("balance") + amount, version=F("version") + 1, updated_at=timezone.now()
        )
        account = rows.get()
        if not changed:
            account.balance_after(amount)  # says what is not allowed
            raise StaleVersionError(
                "Allowed by now: somebody changed the balance since the UPDATE looked", model=self.model, pk=pk
            )
        self._record(account, amount)
        return account


class Serializable(Strategy):
    """The naive code at the isolation level that makes it right: the database watches what was read."""

    name = "serializable"
    summary = "Runs the naive code at SERIALIZABLE, where the database itself refuses it if others interfered."
    guarantee = "SERIALIZABLE: one of two transactions that could not have run one after the other fails (40001)."

    @retried
    def change(self, pk: object, amount: Decimal) -> AbstractAccount:
        """Read, then overwrite, serializably."""
        with isolated_transaction(isolation_level="serializable", using=self.alias):
            return self.overwrite(self.accounts.get(pk=pk), amount)

    @retried
    def move(self, amounts: dict[Any, Decimal]) -> None:
        """Change both in primary-key order, serializably."""
        with isolated_transaction(isolation_level="serializable", using=self.alias):
            for pk, amount in sorted(amounts.items()):
                self.overwrite(self.accounts.get(pk=pk), amount)


class Advisory(Strategy):
    """A lock on the idea of the account instead of its row: right as long as everybody asks for it."""

    name = "advisory"
    summary = "Takes a transaction-level advisory lock on the account's key before it reads the balance."
    guarantee = "pg_advisory_xact_lock: held until COMMIT, but only those wait who take the same lock."

    def change(self, pk: object, amount: Decimal) -> AbstractAccount:
        """Lock the key, read, then overwrite."""
        with transaction.atomic(using=self.alias):
            self._lock(pk)
            return self.overwrite(self.accounts.get(pk=pk), amount)

    def move(self, amounts: dict[Any, Decimal]) -> None:
        """Lock both keys in primary-key order, read, then overwrite."""
        with transaction.atomic(using=self.alias):
            for pk in sorted(amounts):
                self._lock(pk)
            for pk, amount in sorted(amounts.items()):
                self.overwrite(self.accounts.get(pk=pk), amount)

    def _lock(self, pk: object) -> None:
        advisory_lock(self.alias, f"{self.model._meta.db_table}:{self._key(pk)}")


def _found(accounts: Mapping[Any, AbstractAccount], pk: object, model: type[AbstractAccount]) -> AbstractAccount:
    if pk not in accounts:
        raise model.DoesNotExist(f"{model._meta.label} has no row with primary key {pk!r}")
    return accounts[pk]


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
"""Every strategy by its name, bound to `Account`; ``STRATEGIES[name].bound(model=Wallet)`` for another model."""
