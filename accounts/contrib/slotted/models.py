"""The slotted account, its slots, and their entries.

A slot is an account of its own: a row with a balance, a share of the overdraft limit that its balance never goes below,
and a chain of entries. As no slot breaks its share, the account as a whole never breaks the sum of them, whoever writes
which slot: O'Neil's escrow (The Escrow Transactional Method, ACM TODS 11(4), 1986) on plain rows.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Self

from django.conf import settings
from django.db import models, router, transaction
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from accounts.abstract import LONGEST_KEY, checked_key
from accounts.amounts import parse_amount, parse_limit
from accounts.contrib.slotted.gathering import gather, withdraw
from accounts.contrib.slotted.querysets import SlottedAccountQuerySet, sums
from accounts.contrib.slotted.repeating import once
from accounts.contrib.slotted.reshaping import reshape
from accounts.contrib.slotted.spreading import add, shares
from accounts.engine.changes import Applied
from accounts.models import AbstractAccount, AbstractEntry
from django_lockstep.errors import translated_errors

__all__ = ["Slot", "SlotEntry", "SlotKey", "SlottedAccount"]

SLOTS = 16
"""Slots that an account is opened with unless told otherwise."""


class SlottedAccount(models.Model):
    """An account for more writers than one row can take.

    Deposits go to the slot of the connection that makes them, so that few meet; a withdrawal that this slot covers does
    so too, a larger one gathers from several. What the account has is the sum of its slots, read in one statement.
    There is no version: nobody reads a slotted account to write it back.
    """

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        related_name="%(app_label)s_%(class)s_set",
        verbose_name=_("user"),
    )
    size = models.PositiveSmallIntegerField(_("size"), default=SLOTS, help_text=_("Slots that deposits go to."))
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
        """Make an account with so many slots, the balance and the limit spread evenly over them; return it.

        Raises `InvalidAmount`, and ``ValueError`` for a size below 1.
        """
        using = using or router.db_for_write(cls)
        parts = [shares(parse_limit(each), size) for each in (balance, overdraft_limit)]
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
    ) -> list[Applied]:
        """Add the amount to one slot, with its entry, in one statement; return what it came to in that slot, in a list.

        Waits for those who write the same slot: whoever shares it, gathers, or reshapes the account. A second call with
        the same ``idempotency_key`` and amount changes nothing and returns what the first one returned, also when both
        run at the same time; a key costs a row more, and a transaction of several statements.

        Raises `InvalidAmount` before any SQL, ``DoesNotExist``, `IdempotencyKeyReused`, `DeadlockDetected`, and above
        READ COMMITTED `SerializationFailure`, and ``IntegrityError`` where another call uses the key at the same time.
        """
        added, key = parse_amount(amount), checked_key(idempotency_key)
        using = using or router.db_for_write(cls)
        with translated_errors(model=cls, pk=pk):
            return once(cls, pk, added, lambda _: [add(cls, pk, added, key=key, using=using)], key=key, using=using)

    @classmethod
    def withdraw(
        cls, pk: object, amount: object, *, idempotency_key: str | None = None, using: str | None = None
    ) -> list[Applied]:
        """Take the amount off, from one slot if that covers it, else from as many as it takes; return it slot by slot.

        The slots are locked ``FOR NO KEY UPDATE`` in primary-key order, no more of them than needed; their entries have
        the ``transfer`` in common. It is refused only while all slots are locked and do not cover it together.

        Raises as `deposit` does, and `InsufficientFunds`.
        """
        taken, key = parse_amount(amount), checked_key(idempotency_key)
        using = using or router.db_for_write(cls)

        def perform(alone: bool) -> list[Applied]:
            return withdraw(cls, pk, taken, key=key, alone=alone, using=using)

        with translated_errors(model=cls, pk=pk):
            return once(cls, pk, -taken, perform, key=key, using=using)

    @classmethod
    def transfer(
        cls,
        source_pk: object,
        target_pk: object,
        amount: object,
        *,
        idempotency_key: str | None = None,
        using: str | None = None,
    ) -> list[Applied]:
        """Move the amount between two slotted accounts in one transaction; return what it came to, slot by slot.

        Slots of both are locked in primary-key order: opposite transfers never deadlock. The idempotency key is the
        source account's. Raises as `withdraw` does, and ``ValueError`` for one account as source and target.
        """
        moved, key = parse_amount(amount), checked_key(idempotency_key)
        source, target = cls._meta.pk.to_python(source_pk), cls._meta.pk.to_python(target_pk)
        if source == target:
            raise ValueError(f"A transfer needs two accounts, but source and target are both {source!r}")
        using = using or router.db_for_write(cls)

        def perform(_: bool) -> list[Applied]:
            return gather(cls, source, moved, key=key, target=target, using=using)

        with translated_errors(model=cls, pk=[source, target]):
            return once(cls, source, -moved, perform, key=key, target=target, using=using)

    @classmethod
    def reshape(
        cls, pk: object, *, size: int | None = None, overdraft_limit: object = None, using: str | None = None
    ) -> Self:
        """Change the number of slots or the overdraft limit, and spread both anew; return the account.

        Others may go on meanwhile; they wait for the slots, which are all locked. Slots that are no longer needed are
        emptied and stay, for their entries. Processes deposit into new slots within `spreading.SHELF_LIFE` seconds.

        Raises ``ValueError`` for a size below 1, `InvalidAmount`, ``DoesNotExist``, and `InsufficientFunds` where the
        account is further below zero than the new limit allows.
        """
        limit = None if overdraft_limit is None else parse_limit(overdraft_limit)
        using = using or router.db_for_write(cls)
        with translated_errors(model=cls, pk=pk):
            account: Self = reshape(cls, pk, size=size, overdraft_limit=limit, using=using)
        return account

    @property
    def balance(self) -> Decimal:
        """The sum of all slots now, in one statement: every change is in it whole or not at all."""
        return self.totals()[0]

    @property
    def overdraft_limit(self) -> Decimal:
        """The sum of the slots' limits now."""
        return self.totals()[1]

    def totals(self) -> tuple[Decimal, Decimal]:
        """Return balance and overdraft limit as they are now, of one moment."""
        using = router.db_for_read(type(self), instance=self)
        row = Slot._base_manager.using(using).filter(account=self.pk).aggregate(**sums())
        return row["total_balance"], row["total_limit"]


class Slot(AbstractAccount):
    """One part of a slotted account: everything it does is in `AbstractAccount`."""

    # The slotted account's.
    user: Any = None
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
    """An idempotency key that was used for an operation on a slotted account, whichever slots that wrote."""

    # Without constraints, which would lock the accounts' rows; nothing deletes an account, which has slots.
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
    idempotency_key = models.CharField(_("idempotency key"), max_length=LONGEST_KEY)

    class Meta:
        verbose_name = _("slot key")
        verbose_name_plural = _("slot keys")
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(fields=["account", "idempotency_key"], name="%(app_label)s_%(class)s_once")
        ]

    def __str__(self) -> str:
        return self.idempotency_key
