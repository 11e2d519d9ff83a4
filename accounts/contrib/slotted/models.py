"""The slotted account, its slots, and their entries.

A slot is an account itself: a row with a balance, a share of the overdraft limit, and a chain of entries. As no slot
exceeds its share, the whole account never exceeds the sum of the shares, whichever sessions write which slots. This is
O'Neil's escrow (The Escrow Transactional Method, ACM TODS 11(4), 1986) on plain rows.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Self

from django.conf import settings
from django.db import models, router, transaction
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from accounts.abstract import MAX_KEY_LENGTH, validate_key
from accounts.amounts import parse_amount, parse_limit
from accounts.contrib.slotted.idempotency import run_once
from accounts.contrib.slotted.querysets import SlottedAccountQuerySet, slot_sums
from accounts.contrib.slotted.resizing import resize
from accounts.contrib.slotted.spreading import add, split_evenly
from accounts.contrib.slotted.withdrawing import gather, withdraw
from accounts.engine.batches import AppliedChange
from accounts.models import AbstractAccount, AbstractEntry
from django_lockstep.errors import translated_errors

__all__ = ["Slot", "SlotEntry", "SlotKey", "SlottedAccount"]

SLOTS = 16
"""The default number of slots."""


class SlottedAccount(models.Model):
    """An account for more concurrent writers than one row can serve.

    Deposits, and withdrawals that it covers, go to the slot of the connection, so that few sessions write the same row;
    a larger withdrawal takes from several slots. The balance is the sum of the slots, read in one statement. There is
    no version, because a slotted account is never read and written back.
    """

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        related_name="%(app_label)s_%(class)s_set",
        verbose_name=_("user"),
    )
    size = models.PositiveSmallIntegerField(
        _("size"), default=SLOTS, help_text=_("The number of slots that take deposits.")
    )
    created_at = models.DateTimeField(_("created at"), db_default=Now(), editable=False)

    objects = SlottedAccountQuerySet.as_manager()

    class Meta:
        verbose_name = _("slotted account")
        verbose_name_plural = _("slotted accounts")
        default_permissions = ("add", "change", "delete", "view", "deposit", "withdraw", "transfer")
        constraints = [
            models.CheckConstraint(condition=models.Q(size__gte=1), name="%(app_label)s_%(class)s_size_at_least_1")
        ]

    def __str__(self) -> str:
        return f"{self._meta.verbose_name} {self.pk}"

    @classmethod
    def open(
        cls,
        user: models.Model,
        *,
        balance: object = 0,
        overdraft_limit: object = 0,
        size: int = SLOTS,
        using: str | None = None,
    ) -> Self:
        """Create an account with ``size`` slots, balance and limit split evenly between them; return it.

        Raises `InvalidAmount`, and ``ValueError`` for a size below 1.
        """
        using = using or router.db_for_write(cls)
        parts = [split_evenly(parse_limit(each), size) for each in (balance, overdraft_limit)]
        with transaction.atomic(using=using):
            account = cls._base_manager.using(using).create(user=user, size=size)
            slots = [
                Slot(account=account, number=number, balance=share, overdraft_limit=limit, version=1)
                for number, (share, limit) in enumerate(zip(*parts, strict=True))
            ]
            Slot._base_manager.using(using).bulk_create(slots)
        return account

    @classmethod
    def deposit(
        cls, pk: object, amount: object, *, idempotency_key: str | None = None, using: str | None = None
    ) -> list[AppliedChange]:
        """Add the amount to one slot, with its entry, in one statement; return a list with the result in that slot.

        Waits for sessions that write the same slot, or lock it for a larger withdrawal or a resize. A second call with
        the same ``idempotency_key`` and amount changes nothing and returns the first call's result, also when both run
        at the same time; a key costs one more row, and a transaction of several statements.

        Raises `InvalidAmount` before any SQL, ``DoesNotExist``, `IdempotencyKeyReused`, `DeadlockDetected`, and above
        READ COMMITTED `SerializationFailure`, and ``IntegrityError`` where another call uses the key at the same time.
        """
        added, key = parse_amount(amount), validate_key(idempotency_key)
        using = using or router.db_for_write(cls)
        with translated_errors(model=cls, pk=pk):
            return run_once(cls, pk, added, lambda _: [add(cls, pk, added, key=key, using=using)], key=key, using=using)

    @classmethod
    def withdraw(
        cls, pk: object, amount: object, *, idempotency_key: str | None = None, using: str | None = None
    ) -> list[AppliedChange]:
        """Subtract the amount from one slot if that covers it, otherwise from as many as needed; return all results.

        The slots are locked ``FOR NO KEY UPDATE`` in primary-key order, not more of them than needed; their entries
        have the same ``transfer``. It is refused only if all slots are locked and together do not cover it.

        Raises as `deposit` does, and `InsufficientFunds`.
        """
        taken, key = parse_amount(amount), validate_key(idempotency_key)
        using = using or router.db_for_write(cls)

        def perform(autocommit: bool) -> list[AppliedChange]:
            return withdraw(cls, pk, taken, key=key, autocommit=autocommit, using=using)

        with translated_errors(model=cls, pk=pk):
            return run_once(cls, pk, -taken, perform, key=key, using=using)

    @classmethod
    def transfer(
        cls,
        source_pk: object,
        target_pk: object,
        amount: object,
        *,
        idempotency_key: str | None = None,
        using: str | None = None,
    ) -> list[AppliedChange]:
        """Move the amount between two slotted accounts in one transaction; return the results, slot by slot.

        Slots of both are locked in primary-key order: opposite transfers never deadlock. The idempotency key is the
        source account's. Raises as `withdraw` does, and ``ValueError`` for one account as source and target.
        """
        moved, key = parse_amount(amount), validate_key(idempotency_key)
        source, target = cls._meta.pk.to_python(source_pk), cls._meta.pk.to_python(target_pk)
        if source == target:
            raise ValueError(f"A transfer needs two accounts, but source and target are both {source!r}")
        using = using or router.db_for_write(cls)

        def perform(_: bool) -> list[AppliedChange]:
            return gather(cls, source, moved, key=key, target=target, using=using)

        with translated_errors(model=cls, pk=[source, target]):
            return run_once(cls, source, -moved, perform, key=key, target=target, using=using)

    @classmethod
    def resize(
        cls, pk: object, *, size: int | None = None, overdraft_limit: object = None, using: str | None = None
    ) -> Self:
        """Change the number of slots or the overdraft limit, and split balance and limit evenly; return the account.

        Concurrent changes wait for the slots, which are all locked. Slots that are no longer needed are emptied and
        kept, for their entries. Processes deposit into new slots after at most `spreading.SIZE_CACHE_SECONDS` seconds.

        Raises ``ValueError`` for a size below 1, `InvalidAmount`, ``DoesNotExist``, and `InsufficientFunds` where the
        account is further below zero than the new limit allows.
        """
        limit = None if overdraft_limit is None else parse_limit(overdraft_limit)
        using = using or router.db_for_write(cls)
        with translated_errors(model=cls, pk=pk):
            account: Self = resize(cls, pk, size=size, overdraft_limit=limit, using=using)
        return account

    @property
    def balance(self) -> Decimal:
        """The current sum of all slots, read in one statement: it has every change whole or not at all."""
        return self.totals()[0]

    @property
    def overdraft_limit(self) -> Decimal:
        """The current sum of the slots' limits."""
        return self.totals()[1]

    def totals(self) -> tuple[Decimal, Decimal]:
        """Return balance and overdraft limit from one statement, and so of the same moment."""
        using = router.db_for_read(type(self), instance=self)
        # One statement sees one snapshot; adding up slots that were read one by one would miss money on its way between
        # two.
        row = Slot._base_manager.using(using).filter(account=self.pk).aggregate(**slot_sums())
        return row["total_balance"], row["total_limit"]


class Slot(AbstractAccount):
    """One part of a slotted account; all behaviour is in `AbstractAccount`."""

    user: Any = None  # removes the inherited field: the slotted account has the user
    account = models.ForeignKey(
        SlottedAccount, on_delete=models.PROTECT, related_name="slots", db_index=False, verbose_name=_("account")
    )
    number = models.PositiveSmallIntegerField(_("number"))

    class Meta(AbstractAccount.Meta):
        verbose_name = _("slot")
        verbose_name_plural = _("slots")
        default_permissions = ("view",)  # type: ignore[assignment]
        constraints = [
            *AbstractAccount.Meta.constraints,
            models.UniqueConstraint(fields=["account", "number"], name="%(app_label)s_%(class)s_number"),
        ]


class SlotEntry(AbstractEntry):
    """One change of one slot."""

    account = models.ForeignKey(
        Slot, on_delete=models.PROTECT, related_name="entries", db_index=False, verbose_name=_("slot")
    )

    class Meta(AbstractEntry.Meta):
        indexes = [models.Index(fields=["account", "id"], name="accounts_slotentry_chain")]
        verbose_name = _("slot entry")
        verbose_name_plural = _("slot entries")
        default_permissions = ("view",)


class SlotKey(models.Model):
    """An idempotency key that was used for an operation on a slotted account."""

    # No constraints, which would lock the accounts' rows; an account cannot be deleted while it has slots.
    account = models.ForeignKey(
        SlottedAccount,
        on_delete=models.PROTECT,
        related_name="keys",
        db_constraint=False,
        db_index=False,
        verbose_name=_("account"),
    )
    target = models.ForeignKey(
        SlottedAccount,
        on_delete=models.PROTECT,
        related_name="+",
        db_constraint=False,
        db_index=False,
        null=True,
        verbose_name=_("target"),
    )
    idempotency_key = models.CharField(_("idempotency key"), max_length=MAX_KEY_LENGTH)

    class Meta:
        verbose_name = _("slot key")
        verbose_name_plural = _("slot keys")
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(fields=["account", "idempotency_key"], name="%(app_label)s_%(class)s_once")
        ]

    def __str__(self) -> str:
        return self.idempotency_key
