"""The fields of accounts and entries, and the steps that every change of a balance shares; see `accounts.models`."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Self, TypeVar, cast

from django.conf import settings
from django.core.checks import CheckMessage
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models.functions import Now
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from accounts.amounts import MAX_DIGITS, PLACES, changed_balance
from accounts.checks import account_checks
from accounts.entries import AbstractEntry, key_reused_error, money_field
from accounts.opening import OpeningBalanceField
from django_lockstep.locking.memory import apply_written
from django_lockstep.locking.rows import row_lock
from django_lockstep.locking.shapes import CompiledQuerySet, in_class
from django_lockstep.locking.versions import VersionedModel, seen_version
from django_lockstep.locking.writes import current_version, row_of

A = TypeVar("A", bound="AbstractBaseAccount")


class AccountQuerySet(CompiledQuerySet[A]):
    """Accounts to lock, without the rows of other tables that the query joins."""

    def select_for_update(
        self, nowait: bool = False, skip_locked: bool = False, of: Sequence[str] = (), no_key: bool = False
    ) -> Self:
        """Lock the accounts that are read, and their parents' rows first, as ``save()`` writes them.

        As Django's for ``of``; ``FOR UPDATE`` where the database has no ``FOR NO KEY UPDATE``.
        """
        options = row_lock(self.model, using=self.db, no_key=no_key, of=of, nowait=nowait)
        return super().select_for_update(skip_locked=skip_locked, **options)


class AbstractBaseAccount(VersionedModel):
    """An account whose balance changes by entries; `accounts.models.AbstractAccount` adds the ways to change it.

    A concrete subclass needs an entry model: a subclass of `AbstractEntry` whose ``account`` is a foreign key to it
    with ``related_name="entries"``.
    """

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        related_name="%(app_label)s_%(class)s_set",
        verbose_name=_("user"),
    )
    balance = money_field(default=Decimal("0.00"), verbose_name=_("balance"))
    overdraft_limit = money_field(default=Decimal("0.00"), verbose_name=_("overdraft limit"))
    opening_balance = OpeningBalanceField(
        _("opening balance"), max_digits=MAX_DIGITS, decimal_places=PLACES, null=True, editable=False
    )
    # Counted by every UPDATE that books, so that entries that are gone are missed; the version also counts others.
    entry_count = models.PositiveBigIntegerField(_("number of entries"), default=0, db_default=0, editable=False)
    created_at = models.DateTimeField(_("created at"), db_default=Now(), editable=False)
    updated_at = models.DateTimeField(_("updated at"), auto_now=True)

    class Meta:
        abstract = True
        # The ways to move money are granted apart from changing the account.
        default_permissions = ("add", "change", "delete", "view", "deposit", "withdraw", "transfer")
        # The methods check this too, with better errors; the constraint holds for every other writer.
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
    def check(cls, **kwargs: object) -> list[CheckMessage]:
        """Add the checks of `accounts.checks` to Django's own."""
        return [*super().check(**kwargs), *account_checks(cls)]

    @classmethod
    def entry_model(cls) -> type[AbstractEntry]:
        """Return the model of this account's entries. Raises ``FieldDoesNotExist`` if none points here."""
        return cls._meta.get_field("entries").related_model  # type: ignore[return-value]

    @classmethod
    def rows(cls, using: str | None) -> AccountQuerySet[Self]:
        """Return the accounts on this database that the default manager shows."""
        return in_class(cls._default_manager.all(), AccountQuerySet[Self], using)

    @classmethod
    def parse_key(cls, pk: object) -> Any:
        """Return the key as the key field has it. Raises ``TypeError`` for an instance, ``ValueError`` for no key."""
        if isinstance(pk, models.Model):
            raise TypeError(f"Expected the primary key of an account, not the instance {pk._meta.label} {pk.pk!r}")
        try:
            return cls._meta.pk.to_python(pk)
        except ValidationError as error:
            raise ValueError(f"{pk!r} is not a primary key of {cls._meta.label}: {error.messages[0]}") from error

    @staticmethod
    def require_two(source_pk: object, target_pk: object) -> None:
        """Raise ``ValueError`` for a transfer whose source and target have the same key."""
        if source_pk == target_pk:
            raise ValueError(f"A transfer needs two accounts, but source and target are both {source_pk!r}")

    def balance_after(self, amount: Decimal) -> Decimal:
        """Return this instance's balance plus the signed amount.

        Raises `InsufficientFunds` below the overdraft limit, `InvalidAmount` above what a balance can hold.
        """
        name = f"{self._meta.label} {self.pk!r}"
        return changed_balance(self.balance, amount, overdraft_limit=self.overdraft_limit, account=name)

    def covers(self, amount: Decimal) -> bool:
        """Whether the balance and the overdraft limit of this instance allow a withdrawal of the amount."""
        return bool(self.balance - amount >= -self.overdraft_limit)

    def values_after(self, amount: Decimal) -> dict[str, Any]:
        """Return what a change by the signed amount writes, besides the version. Raises as `balance_after` does.

        Also ``ValueError`` for an instance whose version is not certain, as after a rollback.
        """
        seen_version(self)
        return {
            "balance": self.balance_after(amount),
            "entry_count": self.entry_count + 1,
            "updated_at": timezone.now(),
        }

    def book(self, amount: Decimal) -> None:
        """Set the values after the signed amount; nothing is written. Raises as `balance_after` does."""
        for attname, value in self.values_after(amount).items():
            setattr(self, attname, value)

    def record(
        self, amount: Decimal, idempotency_key: str | None = None, *, transfer: uuid.UUID | None = None
    ) -> AbstractEntry:
        """Insert the entry of a change: the signed amount, and this instance's balance and version after it."""
        __tracebackhide__ = True  # the line to be shown is the caller's
        entry: AbstractEntry = self._entries().create(
            account_id=self.pk,
            amount=amount,
            balance_after=self.balance,
            version_after=self.version,
            idempotency_key=idempotency_key,
            transfer=transfer,
        )
        return entry

    def own_row(self) -> models.QuerySet[Any]:
        """Return the account's row as a query set on the table that has its balance and version."""
        return row_of(type(self), self.pk, using=self._database)

    def accept_written(self, written: dict[str, Any]) -> None:
        """Copy into the instance what a guarded UPDATE wrote into its row; after a rollback it has to be read again."""
        apply_written(self, written, using=self._database)

    def is_outdated(self) -> bool:
        """Whether the row was changed since it was read. Raises ``DoesNotExist`` if it was deleted."""
        return seen_version(self) != self.raise_if_deleted()

    def raise_if_deleted(self) -> int:
        """Return the row's current version. Raises ``DoesNotExist`` if the row was deleted."""
        version = current_version(type(self), self.pk, using=self._database)
        if version is None:
            raise self._conflict(self.version, None)
        return version

    def replay_idempotent(self, amount: Decimal, key: str | None, *, to: Self | None = None) -> bool:
        """Whether the key was used before; if so, give the instances the balances and versions of that time.

        False without a key. Raises `IdempotencyKeyReused` if the key was used for another operation.
        """
        # No race with a concurrent use of the key: callers hold the row lock, or the unique constraint refuses one.
        first = self.entry_of(key)
        if first is None:
            return False
        arrived = to and self._entries().filter(account_id=to.pk, transfer=first.transfer).first()
        if first.amount != amount or (first.transfer is None) != (to is None) or (to and not arrived):
            raise key_reused_error(self.pk, key, amount=first.amount)
        self.restore(first)
        if to and arrived:
            to.restore(arrived)
        return True

    def restore(self, entry: AbstractEntry) -> None:
        """Give the instance the balance and version after the entry; nothing is written."""
        # With a newer version than its other values were read with, the instance could overwrite what changed since.
        self.refresh_from_db(using=self._database)
        self.balance, self.version = entry.balance_after, entry.version_after

    def entry_of(self, key: str | None) -> AbstractEntry | None:
        """Return the account's entry with this idempotency key."""
        return self._entries().filter(account_id=self.pk, idempotency_key=key).first() if key else None

    @property
    def _database(self) -> str:
        """The database that the instance was read from; the decorators of the methods chose it."""
        return cast("str", self._state.db)

    def _entries(self) -> models.QuerySet[Any]:
        """Return the entries of all accounts, including those that their default manager hides."""
        return self.entry_model()._base_manager.using(self._database)
