"""The account and its ledger as abstract models: importable without being installed, for a project's own tables."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from decimal import Decimal
from typing import Any, Self

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage
from django.core.exceptions import FieldDoesNotExist
from django.db import connections, models, router, transaction
from django.db.models.expressions import Combinable
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from accounts.amounts import MAX_DIGITS, PLACES, TOO_LARGE, parse_amount
from accounts.batches import apply_many
from accounts.changes import LONGEST_KEY, Applied, Change, checked_key, reused
from accounts.checks import account_checks, check_append_only
from accounts.errors import EntryIsFinal, InsufficientFunds, InvalidAmount
from accounts.statements import Ledger, ledger_of
from django_lockstep.errors import StaleVersionError, translated_errors
from django_lockstep.locking.checks import ChecksTable
from django_lockstep.locking.durations import Duration
from django_lockstep.locking.rows import lock_rows
from django_lockstep.locking.transactions import commits_each_statement
from django_lockstep.locking.versions import VersionedModel

__all__ = ["AbstractAccount", "AbstractEntry"]


def account_model(label: str) -> type[AbstractAccount]:
    """Return the installed account model with this label. Raises ``ValueError`` unless it is one, with entries."""
    try:
        model = apps.get_model(label)
    except (LookupError, ValueError) as error:
        raise ValueError(f"--model {label}: there is no such model ({error})") from error
    if not issubclass(model, AbstractAccount):
        raise ValueError(  # noqa: TRY004 - it is the option's value that is wrong
            f"--model {label}: it is not a subclass of accounts.abstract.AbstractAccount"
        )
    try:
        model.entry_model()
    except FieldDoesNotExist as error:
        raise ValueError(f"--model {label}: no entry model refers to it with related_name='entries'") from error
    return model


def money(**options: Any) -> models.DecimalField[Decimal | int | str | Combinable, Decimal]:
    """Return a field for money; `parse_amount` lets through what it can hold."""
    return models.DecimalField(max_digits=MAX_DIGITS, decimal_places=PLACES, **options)


class AbstractAccount(VersionedModel):
    """An account whose balance changes by entries.

    A concrete subclass needs an entry model: a subclass of `AbstractEntry` whose ``account`` is a foreign key to it
    with ``related_name="entries"``. The pessimistic class methods lock the row first; the optimistic instance methods
    write only if nobody else has. Both bump the version, so that each notices the other.
    """

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        related_name="%(app_label)s_%(class)s_set",
        verbose_name=_("user"),
    )
    balance = money(default=Decimal("0.00"), verbose_name=_("balance"))
    overdraft_limit = money(default=Decimal("0.00"), verbose_name=_("overdraft limit"))
    created_at = models.DateTimeField(_("created at"), db_default=Now(), editable=False)
    updated_at = models.DateTimeField(_("updated at"), auto_now=True)

    class Meta:
        abstract = True
        # The ways to move money are granted apart from changing the account.
        default_permissions = ("add", "change", "delete", "view", "deposit", "withdraw", "transfer")
        constraints = [
            models.CheckConstraint(
                condition=models.Q(balance__gte=-models.F("overdraft_limit")),
                name="%(app_label)s_%(class)s_balance_within_limit",
            ),
            models.CheckConstraint(
                condition=models.Q(overdraft_limit__gte=0),
                name="%(app_label)s_%(class)s_overdraft_limit_not_negative",
            ),
        ]

    def __str__(self) -> str:
        return f"{self._meta.verbose_name} {self.pk}"

    @classmethod
    def check(cls, **kwargs: Any) -> list[CheckMessage]:
        """Add the checks of `accounts.checks` to Django's own."""
        return [*super().check(**kwargs), *account_checks(cls)]

    # Pessimistic: whoever comes second waits for the row.

    @classmethod
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
        """Add the amount to the balance while the row is locked ``FOR NO KEY UPDATE``; return the account.

        Opens a transaction, or joins the caller's, whose end then releases the lock. Waits for the row without bound,
        at most ``timeout`` (timedelta or seconds), or not at all (``nowait``). A second call with the same
        ``idempotency_key`` and amount changes nothing and returns the account as the first call left it, also when both
        run at the same time. Right at every isolation level.

        Raises `InvalidAmount` before any SQL, ``DoesNotExist``, `IdempotencyKeyReused`, `LockNotAvailable`,
        `DeadlockDetected`, and above READ COMMITTED `SerializationFailure`.
        """
        return cls._change_locked(
            pk, parse_amount(amount), idempotency_key=idempotency_key, nowait=nowait, timeout=timeout, using=using
        )

    @classmethod
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
        """Take the amount off the balance; as `deposit`, and raises `InsufficientFunds` below the overdraft limit."""
        return cls._change_locked(
            pk, -parse_amount(amount), idempotency_key=idempotency_key, nowait=nowait, timeout=timeout, using=using
        )

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
        moved, key = parse_amount(amount), checked_key(idempotency_key)
        source_pk, target_pk = cls._meta.pk.to_python(source_pk), cls._meta.pk.to_python(target_pk)
        if source_pk == target_pk:
            raise ValueError(f"A transfer needs two accounts, but source and target are both {source_pk!r}")
        using = using or router.db_for_write(cls)
        with translated_errors(model=cls, pk=[source_pk, target_pk]), transaction.atomic(using=using):
            rows = lock_rows(cls, [source_pk, target_pk], nowait=nowait, timeout=timeout, using=using)
            source, target = sorted(rows, key=lambda row: row.pk != source_pk)
            with source._written_to(using), target._written_to(using):
                if not source._is_replay(-moved, key, to=target):
                    transfer = uuid.uuid4()
                    source._book(-moved, idempotency_key=key, transfer=transfer)
                    target._book(moved, transfer=transfer)
        return source, target

    @classmethod
    def apply_many(cls, changes: Iterable[Change | tuple[Any, Any]], *, using: str | None = None) -> list[Applied]:
        """Make many changes of many accounts, all or none, each with its entry; return what each came to, in order.

        ``changes`` are `Change` or pairs of a primary key and a signed amount. All accounts are locked ``FOR NO KEY
        UPDATE`` in primary-key order; on PostgreSQL all of it is one statement, however many changes there are. Those
        of one account happen in the order given: each balance along the way keeps the overdraft limit, as if they had
        been made one by one. A change whose ``idempotency_key`` was used before, here or in the list, is left out, and
        its answer says so. Opens a transaction or joins the caller's; waits for the rows without bound.

        Raises `InvalidAmount` or ``ValueError`` before any SQL, ``DoesNotExist``, `InsufficientFunds`,
        `IdempotencyKeyReused`, each with the ``index`` of the change, `DeadlockDetected`, and above READ COMMITTED
        `SerializationFailure`.
        """
        return apply_many(cls, changes, using=using)

    @classmethod
    def _change_locked(
        cls,
        pk: object,
        amount: Decimal,
        *,
        idempotency_key: str | None,
        nowait: bool,
        timeout: Duration | None,
        using: str | None,
    ) -> Self:
        pk, key = cls._meta.pk.to_python(pk), checked_key(idempotency_key)
        using = using or router.db_for_write(cls)
        with translated_errors(model=cls, pk=pk):
            if key is None and timeout is None and commits_each_statement(connections[using]):
                ledger = ledger_of(cls, using)
                account = ledger and ledger.lock_and_add(pk, amount, wait="nowait" if nowait else "queue")
                if account:
                    return account
            # In steps, where more is asked for, and where the one statement did nothing: here it is said why.
            with transaction.atomic(using=using):
                account = cls._locked(pk, nowait=nowait, timeout=timeout, using=using)
                with account._written_to(using):
                    if not account._is_replay(amount, key):
                        account._book(amount, idempotency_key=key)
        return account

    @classmethod
    def _locked(cls, pk: object, *, nowait: bool, timeout: Duration | None, using: str) -> Self:
        """Lock the row and return it."""
        ledger = ledger_of(cls, using) if timeout is None else None
        account = ledger and ledger.lock(pk, wait="nowait" if nowait else "wait")
        return account or lock_rows(cls, [pk], nowait=nowait, timeout=timeout, using=using)[0]

    # Optimistic: whoever comes second is told so.

    def try_deposit(self, amount: object, *, idempotency_key: str | None = None) -> bool:
        """Add the amount if the account is still as this instance saw it, in one guarded UPDATE, with its entry.

        True: done, and the instance holds the new balance and version. False: somebody was faster, nothing was written,
        the instance is as it was (``refresh_from_db()`` and decide again; `retry_on_conflict` does both in a loop). A
        key that was used for the same amount answers True with the balance and version of the first time.

        Opens a transaction, or a savepoint in the caller's. Above READ COMMITTED raises `SerializationFailure` where it
        would return False. Raises `InvalidAmount` before any SQL, ``DoesNotExist`` where the row is gone,
        `IdempotencyKeyReused`.
        """
        return self._try_change(parse_amount(amount), idempotency_key=idempotency_key)

    def try_withdraw(self, amount: object, *, idempotency_key: str | None = None) -> bool:
        """Take the amount off; as `try_deposit`, and raises `InsufficientFunds` if the account seen is the current."""
        return self._try_change(-parse_amount(amount), idempotency_key=idempotency_key)

    def _try_change(self, amount: Decimal, *, idempotency_key: str | None) -> bool:
        key = checked_key(idempotency_key)
        using = self._write_alias()
        # One statement that is a transaction by itself needs no other around it.
        ledger = ledger_of(type(self), using)
        alone = key is None and ledger is not None and commits_each_statement(connections[using])
        block: AbstractContextManager[None] = nullcontext() if alone else transaction.atomic(using=using)
        with translated_errors(model=type(self), pk=self.pk), block:
            if self._is_replay(amount, key):
                return True
            try:
                balance = self.balance_after(amount)
            except InsufficientFunds:
                if self._is_outdated(using):
                    return False
                raise
            return self._write(amount, balance, ledger=ledger, idempotency_key=key)

    def _is_outdated(self, using: str) -> bool:
        """Whether somebody changed the row since it was read. Raises ``DoesNotExist`` if it is gone."""
        current = type(self)._base_manager.using(using).values_list("version", flat=True).get(pk=self.pk)
        return bool(current != self.version)

    # What every way of changing a balance shares.

    def balance_after(self, amount: Decimal) -> Decimal:
        """Return the balance that this signed amount leads to, from the balance of this instance.

        Raises `InsufficientFunds` below the overdraft limit, `InvalidAmount` above what a balance can hold.
        """
        balance: Decimal = self.balance + amount
        if amount < 0 and balance < -self.overdraft_limit:
            raise InsufficientFunds(
                f"{self._meta.label} {self.pk!r} has {self.balance} and an overdraft limit of {self.overdraft_limit}: "
                f"not enough for {-amount}",
                balance=self.balance,
                overdraft_limit=self.overdraft_limit,
                amount=-amount,
            )
        if balance >= TOO_LARGE:
            rule = f"a balance has at most {MAX_DIGITS - PLACES} digits before the point"
            raise InvalidAmount(f"Invalid amount {amount}: {rule}", value=amount, rule=rule)
        return balance

    def record(self, amount: Decimal, *, idempotency_key: str | None = None, transfer: uuid.UUID | None = None) -> Any:
        """Write the entry of a change: the signed amount with this instance's balance and version after it."""
        return self._entries().create(
            account_id=self.pk,
            amount=amount,
            balance_after=self.balance,
            version_after=self.version,
            idempotency_key=idempotency_key,
            transfer=transfer,
        )

    def _book(self, amount: Decimal, **entry: Any) -> None:
        """Change the balance of a row that is locked, with its entry."""
        ledger = ledger_of(type(self), self._write_alias())
        if not self._write(amount, self.balance_after(amount), ledger=ledger, **entry):
            raise StaleVersionError(model=type(self), pk=self.pk, expected=self.version, target=self)

    def _write(self, amount: Decimal, balance: Decimal, *, ledger: Ledger[Any] | None, **entry: Any) -> bool:
        """Write the balance and its entry if the row is as this instance saw it; return whether it was."""
        if ledger is not None:
            return self._write_guarded(
                lambda seen, _: ledger.write(self.pk, balance, seen=seen, entry={"amount": amount, **entry})
            )
        written = self.update_if_unchanged(balance=balance)
        if written:
            self.record(amount, **entry)
        return written

    @classmethod
    def entry_model(cls) -> type[AbstractEntry]:
        """Return the model of this account's entries. Raises ``FieldDoesNotExist`` if none points here."""
        return cls._meta.get_field("entries").related_model  # type: ignore[return-value]

    def _entries(self) -> models.QuerySet[Any]:
        return self.entry_model()._base_manager.using(self._write_alias())

    def _is_replay(self, amount: Decimal, key: str | None, *, to: Self | None = None) -> bool:
        """Whether the key's operation was done before; if so, put the accounts into the state that it left.

        Raises `IdempotencyKeyReused` if it was another operation.
        """
        first = key and self._entries().filter(account_id=self.pk, idempotency_key=key).first()
        if not first:
            return False
        arrived = to and first.arrival_at(to.pk)
        if first.amount != amount or (first.transfer is None) != (to is None) or (to and not arrived):
            raise reused(self.pk, key, amount=first.amount)
        first.restore(self)
        if to and arrived:
            arrived.restore(to)
        return True


class EntryQuerySet(models.QuerySet[Any]):
    """Entries, to read and to create."""

    def update(self, **values: Any) -> int:
        """Raise `EntryIsFinal`."""
        raise EntryIsFinal("Entries are append-only: update() is refused")

    def delete(self) -> tuple[int, dict[str, int]]:
        """Raise `EntryIsFinal`."""
        raise EntryIsFinal("Entries are append-only: delete() is refused")

    def bulk_update(self, objs: Iterable[Any], fields: Iterable[str], batch_size: int | None = None) -> int:
        """Raise `EntryIsFinal`."""
        raise EntryIsFinal("Entries are append-only: bulk_update() is refused")


class AbstractEntry(ChecksTable):
    """One change of one account, for ever.

    The entries of an account, by primary key, form a chain: each ``balance_after`` is the one before plus ``amount``,
    and the last one is the account's balance. A subclass adds ``account``, a foreign key with
    ``related_name="entries"``, and the migration operation `AppendOnly`, which keeps SQL from changing entries.
    """

    amount = money(verbose_name=_("amount"), help_text=_("Negative for what was taken off."))
    balance_after = money(verbose_name=_("balance after"))
    version_after = models.BigIntegerField(_("version after"))
    idempotency_key = models.CharField(  # noqa: DJ001 - NULL is what UNIQUE leaves alone
        _("idempotency key"), max_length=LONGEST_KEY, null=True, blank=True
    )
    transfer = models.UUIDField(
        _("transfer"), null=True, blank=True, help_text=_("The same for both entries of a transfer.")
    )
    created_at = models.DateTimeField(_("created at"), db_default=Now(), editable=False)

    objects = EntryQuerySet.as_manager()

    class Meta:
        abstract = True
        base_manager_name = "objects"
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["account", "idempotency_key"],
                condition=models.Q(idempotency_key__isnull=False),
                name="%(app_label)s_%(class)s_idempotency_key_once",
            ),
        ]
        # Without a name: Django makes one of at most 30 characters, however long the app's and the model's names are.
        indexes = [models.Index(fields=["account", "id"])]

    def __str__(self) -> str:
        return f"{self.amount:+} = {self.balance_after}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Insert the entry. Raises `EntryIsFinal` for one that was saved before."""
        if not self._state.adding:
            raise EntryIsFinal(f"{self._meta.label} {self.pk!r} is append-only: it cannot be saved again")
        super().save(*args, **{**kwargs, "force_insert": True})

    @classmethod
    def check_table(cls, alias: str) -> list[CheckMessage]:
        """Return what the table on this database lacks; see `accounts.checks`."""
        return check_append_only(cls, alias)

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        """Raise `EntryIsFinal`."""
        raise EntryIsFinal(f"{self._meta.label} {self.pk!r} is append-only: it cannot be deleted")

    def arrival_at(self, pk: object) -> Self | None:
        """Return the other entry of this one's transfer, if that went to the account with this primary key."""
        entries: models.QuerySet[Any] = type(self)._base_manager.using(self._state.db)
        return entries.filter(account_id=pk, transfer=self.transfer).first()

    def restore(self, account: AbstractAccount) -> None:
        """Put into the instance what the account was after this entry; nothing is written.

        Raises ``DoesNotExist`` where the account is gone.
        """
        # With a newer version than its other values were read with, the instance could overwrite what changed since.
        account.refresh_from_db(using=account._write_alias())
        account.balance, account.version = self.balance_after, self.version_after
