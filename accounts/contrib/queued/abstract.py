"""The queued change as an abstract model: importable without being installed, for accounts of one's own."""

from __future__ import annotations

import time
import uuid
from decimal import Decimal
from typing import Self

from django.db import models, router
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from accounts.abstract import LONGEST_KEY, checked_key, money
from accounts.amounts import parse_amount
from accounts.contrib.queued.appending import append
from accounts.contrib.queued.errors import StillQueued
from accounts.contrib.queued.querysets import QueuedQuerySet
from accounts.contrib.queued.refusals import as_error
from accounts.contrib.queued.waiting import pausing
from accounts.engine.changes import Change
from accounts.models import AbstractAccount
from django_lockstep.errors import translated_errors
from django_lockstep.locking.durations import Duration, seconds

__all__ = ["AbstractQueuedChange"]


class State(models.TextChoices):
    """Where a change is."""

    PENDING = "pending", _("pending")
    APPLIED = "applied", _("applied")
    REFUSED = "refused", _("refused")
    FAILED = "failed", _("failed")


class AbstractQueuedChange(models.Model):
    """A change that waits for a consumer (``manage.py apply_queued``), and then says what it came to.

    Appending is one INSERT that locks no account. Nothing is booked until a consumer has committed: a deposit can be
    spent, and a withdrawal be refused, only then. Changes of one account are applied in the order of their keys as far
    as their transactions have committed; those that one caller appends one after the other keep their order.

    A subclass adds ``account`` and ``target``, foreign keys to the account model without a constraint in the database.
    Further fields get what saving gives them. Where ``save()`` is overridden, or somebody listens to ``pre_save`` or
    ``post_save``, a change is saved that way, after looking for its accounts.
    """

    State = State

    amount = money(verbose_name=_("amount"), help_text=_("Negative for what is taken off; positive in a transfer."))
    idempotency_key = models.CharField(  # noqa: DJ001 - NULL is what UNIQUE leaves alone
        _("idempotency key"), max_length=LONGEST_KEY, null=True, blank=True
    )
    state = models.CharField(_("state"), max_length=10, choices=State.choices, default=State.PENDING)
    balance_after = money(null=True, verbose_name=_("balance after"))
    version_after = models.BigIntegerField(_("version after"), null=True)
    replayed = models.BooleanField(
        _("replayed"), null=True, help_text=_("Whether the account had done it before, by the idempotency key.")
    )
    refusal = models.JSONField(
        _("refusal"), null=True, help_text=_("The error that it was refused with, or failed with.")
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
        """Append a deposit; return the change, whose `wait` says what it came to.

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
        """Append a transfer, applied whole or not at all; as `withdraw`. Raises ``ValueError`` for one account.

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
            idempotency_key=checked_key(key),
        )
        using = using or router.db_for_write(cls)
        with translated_errors(model=cls, pk=pk):
            appended: Self = append(change, using=using)
        return appended

    def wait(self, timeout: Duration = 10.0) -> Self:
        """Return this change as soon as a consumer has decided about it, with what it came to.

        On PostgreSQL it listens for the consumer's notification on the connection of the calling thread; in a
        transaction, and on other databases, it looks again after pauses that grow from 2 to 100 milliseconds. Call it
        outside of the transaction that appended the change, which no consumer sees before.

        Raises `StillQueued` when ``timeout`` (timedelta or seconds) is over, and what the change was refused with:
        `InsufficientFunds`, `InvalidAmount`, `IdempotencyKeyReused`, ``DoesNotExist``; this one also where the change
        was decided and purged before it was looked at. `ChangeFailed` where the database refused to write it.
        """
        bound, using = (
            time.monotonic() + seconds(timeout, name="timeout"),
            self._state.db or router.db_for_write(type(self)),
        )
        if self._is_pending(using):
            with pausing(self, using=using) as pause:
                # Looked at once more, as it may have been decided before this session listened.
                while self._is_pending(using):
                    left = bound - time.monotonic()
                    if left <= 0:
                        raise StillQueued(f"{self._meta.verbose_name} {self.pk} is still pending", pk=self.pk)
                    pause(left)
        if self.state != State.APPLIED:
            raise as_error(self.account_model(), self.refusal or {})
        return self

    def _is_pending(self, using: str) -> bool:
        if self.state == State.PENDING:
            self.refresh_from_db(using=using)
        return self.state == State.PENDING

    def changes(self) -> list[Change]:
        """Return what it is made of, for `AbstractAccount.apply_many`."""
        account, target = self.account_id, self.target_id  # type: ignore[attr-defined]
        if target is None:
            return [Change(account, self.amount, self.idempotency_key)]
        transfer = uuid.uuid4()
        leaves = Change(account, -self.amount, self.idempotency_key, transfer)
        return [leaves, Change(target, self.amount, None, transfer)]
