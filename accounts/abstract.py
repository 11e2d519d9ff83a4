"""The fields of accounts and entries, and the steps that every change of a balance shares; see `accounts.models`."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Literal, Self, cast

from django.conf import settings
from django.core.checks import CheckMessage
from django.db import models
from django.db.models.expressions import Combinable
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from accounts.amounts import MAX_DIGITS, PLACES, changed_balance
from accounts.checks import account_checks, check_append_only
from accounts.errors import EntryIsFinal, IdempotencyKeyReused
from accounts.opening import OpeningBalanceField
from django_lockstep.locking.checks import ChecksTable
from django_lockstep.locking.memory import apply_written
from django_lockstep.locking.versions import VersionedModel
from django_lockstep.locking.writes import current_version, row_of

__all__ = [
    "MAX_KEY_LENGTH",
    "AbstractBaseAccount",
    "AbstractEntry",
    "entries_of",
    "key_reused_error",
    "money_field",
    "validate_key",
]

MAX_KEY_LENGTH = 255
"""Characters of an idempotency key."""


def money_field(**options: Any) -> models.DecimalField[Decimal | int | str | Combinable, Decimal]:
    """Return a field for money; it holds every amount that `parse_amount` accepts."""
    return models.DecimalField(max_digits=MAX_DIGITS, decimal_places=PLACES, **options)


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
    def rows(cls, using: str) -> models.QuerySet[Self]:
        """Return the accounts on this database that the default manager shows."""
        rows: models.QuerySet[Self] = cast("Any", cls._default_manager).using(using)
        return rows

    @classmethod
    def parse_transfer_keys(cls, source_pk: object, target_pk: object) -> tuple[Any, Any]:
        """Return the keys of a transfer as the key field has them. Raises ``ValueError`` where both are the same."""
        source, target = cls._meta.pk.to_python(source_pk), cls._meta.pk.to_python(target_pk)
        if source == target:
            raise ValueError(f"A transfer needs two accounts, but source and target are both {source!r}")
        return source, target

    def own_row(self, *, using: str) -> models.QuerySet[Any]:
        """Return the account's row as a query set on the table that has its balance and version."""
        return row_of(type(self), self.pk, using=using)

    def covers(self, amount: Decimal) -> bool:
        """Whether the balance and the overdraft limit of this instance allow a withdrawal of the amount."""
        return bool(self.balance - amount >= -self.overdraft_limit)

    def balance_after(self, amount: Decimal) -> Decimal:
        """Return this instance's balance plus the signed amount.

        Raises `InsufficientFunds` below the overdraft limit, `InvalidAmount` above what a balance can hold.
        """
        name = f"{self._meta.label} {self.pk!r}"
        return changed_balance(self.balance, amount, overdraft_limit=self.overdraft_limit, account=name)

    def record(
        self,
        amount: Decimal,
        *,
        using: str,
        idempotency_key: str | None = None,
        transfer: uuid.UUID | None = None,
    ) -> AbstractEntry:
        """Insert the entry of a change: the signed amount, and this instance's balance and version after it."""
        entry: AbstractEntry = entries_of(type(self), using).create(
            account_id=self.pk,
            amount=amount,
            balance_after=self.balance,
            version_after=self.version,
            idempotency_key=idempotency_key,
            transfer=transfer,
        )
        return entry

    def accept_written(self, *, using: str, **written: object) -> None:
        """Copy into the instance what a guarded UPDATE wrote into its row; after a rollback it has to be read again."""
        apply_written(self, written, using=using)

    def is_outdated(self, *, using: str) -> bool:
        """Whether the row was changed since it was read. Raises ``DoesNotExist`` if it is gone."""
        return self._current_version(using) != self.version

    def lost_to_another_writer(self, *, using: str) -> Literal[False]:
        """Return False, for a guarded UPDATE that matched no row. Raises ``DoesNotExist`` if the row is gone."""
        self._current_version(using)
        return False

    def _current_version(self, using: str) -> int:
        version = current_version(type(self), self.pk, using=using)
        if version is None:
            raise self._conflict(self.version, None)
        return version

    def replay_if_done(self, amount: Decimal, key: str | None, *, using: str, to: Self | None = None) -> bool:
        """Whether the key was used before; if so, give the instances the balances and versions of that time.

        False without a key. Raises `IdempotencyKeyReused` if the key was used for another operation.
        """
        entries = entries_of(type(self), using)
        # No race with a concurrent use of the key: callers hold the row lock, or the unique constraint refuses one.
        first = key and entries.filter(account_id=self.pk, idempotency_key=key).first()
        if not first:
            return False
        arrived = to and first.counter_entry(to.pk)
        if first.amount != amount or (first.transfer is None) != (to is None) or (to and not arrived):
            raise key_reused_error(self.pk, key, amount=first.amount)
        first.restore(self, using=using)
        if to and arrived:
            arrived.restore(to, using=using)
        return True


def entries_of(model: type[AbstractBaseAccount], using: str) -> models.QuerySet[Any]:
    """Return the entries of the model's accounts, including those that their default manager hides."""
    rows: models.QuerySet[Any] = model.entry_model()._base_manager.using(using)
    return rows


def validate_key(key: str | None) -> str | None:
    """Return the idempotency key. Raises ``ValueError`` for one that the entry cannot hold."""
    if key is not None and not (isinstance(key, str) and 0 < len(key) <= MAX_KEY_LENGTH and "\0" not in key):
        raise ValueError(f"idempotency_key must be a string of 1 to {MAX_KEY_LENGTH} characters, not {key!r}")
    return key


def key_reused_error(account: object, key: str | None, *, amount: Decimal) -> IdempotencyKeyReused:
    """Return the error for a key that was used for another operation; ``amount`` is that operation's."""
    return IdempotencyKeyReused(
        f"The idempotency key {key!r} of account {account!r} belongs to another operation, with amount {amount}",
        idempotency_key=key,
        recorded=amount,
    )


class EntryQuerySet(models.QuerySet[Any]):
    """Entries can be read and created; every method that would change or delete them raises `EntryIsFinal`."""

    def update(self, **values: object) -> int:
        raise EntryIsFinal("Entries are append-only: update() is refused")

    def delete(self) -> tuple[int, dict[str, int]]:
        raise EntryIsFinal("Entries are append-only: delete() is refused")

    def bulk_update(self, objs: Iterable[object], fields: Iterable[str], batch_size: int | None = None) -> int:
        raise EntryIsFinal("Entries are append-only: bulk_update() is refused")


class AbstractEntry(ChecksTable):
    """One change of one account; entries are never changed or deleted.

    The entries of an account, by primary key, form a chain: each ``balance_after`` is the one before plus ``amount``,
    and the last one is the account's balance. A subclass adds ``account``, a foreign key with
    ``related_name="entries"``, and the migration operation `AppendOnly`, which keeps SQL from changing entries.
    """

    amount = money_field(verbose_name=_("amount"), help_text=_("Negative for a withdrawal."))
    balance_after = money_field(verbose_name=_("balance after"))
    version_after = models.BigIntegerField(_("version after"))
    idempotency_key = models.CharField(  # noqa: DJ001 - NULL is what UNIQUE leaves alone
        _("idempotency key"), max_length=MAX_KEY_LENGTH, null=True, blank=True
    )
    transfer = models.UUIDField(
        _("transfer"), null=True, blank=True, help_text=_("The same for both entries of a transfer.")
    )
    created_at = models.DateTimeField(_("created at"), db_default=Now(), editable=False)

    objects = EntryQuerySet.as_manager()

    class Meta:
        abstract = True
        # Django itself uses the base manager, such as for refresh_from_db(): entries stay append-only there too.
        base_manager_name = "objects"
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["account", "idempotency_key"],
                # A partial index: most entries have no key, and would only make it larger.
                condition=models.Q(idempotency_key__isnull=False),
                name="%(app_label)s_%(class)s_idempotency_key_once",
            ),
        ]
        # Without a name: Django makes one of at most 30 characters, however long the app's and the model's names are.
        indexes = [models.Index(fields=["account", "id"])]

    def __str__(self) -> str:
        return f"{self.amount:+} = {self.balance_after}"

    def save(self, *args: object, **kwargs: Any) -> None:
        """Insert the entry. Raises `EntryIsFinal` for one that was saved before."""
        if not self._state.adding:
            raise EntryIsFinal(f"{self._meta.label} {self.pk!r} is append-only: it cannot be saved again")
        # Without force_insert, Django would try an UPDATE first where a primary key is given.
        super().save(*args, **{**kwargs, "force_insert": True})

    @classmethod
    def check_table(cls, alias: str) -> list[CheckMessage]:
        """Warn where the table on this database has no append-only trigger; see `accounts.checks`."""
        return check_append_only(cls, alias)

    def delete(self, *args: object, **kwargs: object) -> tuple[int, dict[str, int]]:
        raise EntryIsFinal(f"{self._meta.label} {self.pk!r} is append-only: it cannot be deleted")

    def counter_entry(self, pk: object) -> Self | None:
        """Return the other entry of this transfer if it belongs to the account with this primary key."""
        entries: models.QuerySet[Any] = type(self)._base_manager.using(self._state.db)
        return entries.filter(account_id=pk, transfer=self.transfer).first()

    def restore(self, account: AbstractBaseAccount, *, using: str) -> None:
        """Give the instance the balance and version after this entry; nothing is written.

        Raises ``DoesNotExist`` where the account is gone.
        """
        # With a newer version than its other values were read with, the instance could overwrite what changed since.
        account.refresh_from_db(using=using)
        account.balance, account.version = self.balance_after, self.version_after
