"""The queued change as an abstract model, for a project's own account model; importable without the app installed."""

from __future__ import annotations

import time
import uuid
from decimal import Decimal
from typing import Self

from django.db import models, router
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from accounts.abstract import MAX_KEY_LENGTH, money_field, validate_key
from accounts.amounts import parse_amount
from accounts.contrib.queued.appending import append
from accounts.contrib.queued.errors import StillQueued
from accounts.contrib.queued.querysets import QueuedQuerySet
from accounts.contrib.queued.refusals import refusal_from_data
from accounts.contrib.queued.waiting import listening
from accounts.engine.batches import BalanceChange
from accounts.models import AbstractAccount
from django_lockstep.errors import translated_errors
from django_lockstep.locking.durations import Duration, seconds

__all__ = ["AbstractQueuedChange"]


class State(models.TextChoices):
    """The states of a queued change."""

    PENDING = "pending", _("pending")
    APPLIED = "applied", _("applied")
    REFUSED = "refused", _("refused")
    FAILED = "failed", _("failed")


class AbstractQueuedChange(models.Model):
    """A change that waits for a consumer (``manage.py apply_queued``), and afterwards has its result.

    Appending is one INSERT that locks no account. Balances change only when a consumer commits: until then a deposit
    cannot be spent, and a withdrawal can still be refused. Changes of one account are applied in the order of their
    primary keys, among those whose transactions have committed; changes that one caller appends keep their order.

    A subclass adds ``account`` and ``target``, foreign keys to the account model without a database constraint.
    Additional fields get the values that ``save()`` would give them. Where ``save()`` is overridden, or ``pre_save`` or
    ``post_save`` has receivers, ``save()`` is called, after a SELECT of the accounts.
    """

    State = State

    amount = money_field(verbose_name=_("amount"), help_text=_("Negative for a withdrawal; positive for a transfer."))
    idempotency_key = models.CharField(  # noqa: DJ001 - NULL is what UNIQUE leaves alone
        _("idempotency key"), max_length=MAX_KEY_LENGTH, null=True, blank=True
    )
    state = models.CharField(_("state"), max_length=10, choices=State.choices, default=State.PENDING)
    balance_after = money_field(null=True, verbose_name=_("balance after"))
    version_after = models.BigIntegerField(_("version after"), null=True)
    replayed = models.BooleanField(
        _("replayed"), null=True, help_text=_("Whether the account had applied this idempotency key before.")
    )
    refusal = models.JSONField(
        _("refusal"), null=True, help_text=_("The error with which the change was refused or failed.")
    )
    queued_at = models.DateTimeField(_("queued at"), db_default=Now(), editable=False)
    decided_at = models.DateTimeField(_("decided at"), null=True, editable=False)

    objects = QueuedQuerySet.as_manager()

    class Meta:
        abstract = True
        ordering = ["pk"]
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(
                fields=["account", "idempotency_key"],
                condition=Q(idempotency_key__isnull=False),
                name="%(app_label)s_%(class)s_idempotency_key_once",
            ),
        ]
        indexes = [models.Index(fields=["id"], condition=Q(state="pending"), name="%(class)s_pending")]

    def __str__(self) -> str:
        return f"{self.amount:+} ({self.state})"

    @classmethod
    def account_model(cls) -> type[AbstractAccount]:
        """Return the model of the accounts."""
        return cls._meta.get_field("account").related_model  # type: ignore[return-value]

    @classmethod
    def deposit(
        cls, pk: object, amount: object, *, idempotency_key: str | None = None, using: str | None = None
    ) -> Self:
        """Append a deposit; return the queued change, whose `wait` returns the result.

        A key that was queued before for the same change appends nothing and returns the first one. Raises
        `InvalidAmount` before any SQL, ``DoesNotExist``, `IdempotencyKeyReused`.
        """
        return cls._append(pk, parse_amount(amount), None, idempotency_key, using)

    @classmethod
    def withdraw(
        cls, pk: object, amount: object, *, idempotency_key: str | None = None, using: str | None = None
    ) -> Self:
        """Append a withdrawal; as `deposit`. Whether the account covers it is decided when it is applied."""
        return cls._append(pk, -parse_amount(amount), None, idempotency_key, using)

    @classmethod
    def transfer(
        cls,
        source_pk: object,
        target_pk: object,
        amount: object,
        *,
        idempotency_key: str | None = None,
        using: str | None = None,
    ) -> Self:
        """Append a transfer, applied whole or not at all; as `withdraw`. Raises ``ValueError`` for a single account.

        The idempotency key is the source account's: used for another target it raises `IdempotencyKeyReused`.
        """
        moved, to_python = parse_amount(amount), cls.account_model()._meta.pk.to_python
        source, target = to_python(source_pk), to_python(target_pk)
        if source == target:
            raise ValueError(f"A transfer needs two accounts, but source and target are both {source!r}")
        return cls._append(source, moved, target, idempotency_key, using)

    @classmethod
    def _append(cls, pk: object, amount: Decimal, target: object, key: str | None, using: str | None) -> Self:
        change = cls(
            account_id=cls.account_model()._meta.pk.to_python(pk),
            target_id=target,
            amount=amount,
            idempotency_key=validate_key(key),
        )
        using = using or router.db_for_write(cls)
        with translated_errors(model=cls, pk=pk):
            appended: Self = append(change, using=using)
        return appended

    def wait(self, timeout: Duration = 10.0) -> Self:
        """Wait until a consumer has decided about this change; return it with its result.

        On PostgreSQL it listens for the consumer's notification on the connection of the calling thread; in a
        transaction, and on other databases, it polls with pauses that grow from 2 to 100 milliseconds. Call it after
        the transaction that appended the change: no consumer sees the change before COMMIT.

        Raises `StillQueued` after ``timeout`` (timedelta or seconds), and the error that refused the change:
        `InsufficientFunds`, `InvalidAmount`, `IdempotencyKeyReused`, ``DoesNotExist`` (also where the change was purged
        in the meantime). Raises `ChangeFailed` where the database refused to write it.
        """
        bound, using = (
            time.monotonic() + seconds(timeout, name="timeout"),
            self._state.db or router.db_for_write(type(self)),
        )
        if self._is_pending(using):
            with listening(self, using=using) as pause:
                # Read again first: it may have been decided before LISTEN took effect.
                while self._is_pending(using):
                    left = bound - time.monotonic()
                    if left <= 0:
                        raise StillQueued(f"{self._meta.verbose_name} {self.pk} is still pending", pk=self.pk)
                    pause(left)
        if self.state != State.APPLIED:
            raise refusal_from_data(self.account_model(), self.refusal or {})
        return self

    def _is_pending(self, using: str) -> bool:
        if self.state == State.PENDING:
            self.refresh_from_db(using=using)
        return self.state == State.PENDING

    def changes(self) -> list[BalanceChange]:
        """Return the balance changes of which it consists, for `AbstractAccount.apply_many`."""
        account, target = self.account_id, self.target_id  # type: ignore[attr-defined]
        if target is None:
            return [BalanceChange(account, self.amount, self.idempotency_key)]
        # A new identifier each time is harmless: a transfer that was applied before is found by its key.
        transfer = uuid.uuid4()
        leaves = BalanceChange(account, -self.amount, self.idempotency_key, transfer)
        return [leaves, BalanceChange(target, self.amount, None, transfer)]
