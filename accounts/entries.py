"""The entry of an account: one change of its balance, never changed and never deleted."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any, TypeVar

from django.core.checks import CheckMessage
from django.db import models
from django.db.models.expressions import Combinable
from django.db.models.functions import Now
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from accounts.amounts import MAX_DIGITS, PLACES
from accounts.checks import check_append_only
from accounts.errors import EntryIsFinal, IdempotencyKeyReused
from django_lockstep.locking.checks import ChecksTable
from django_lockstep.locking.shapes import CompiledQuerySet

E = TypeVar("E", bound="AbstractEntry")

MAX_KEY_LENGTH = 255
"""Characters of an idempotency key."""


def money_field(**options: Any) -> models.DecimalField[Decimal | int | str | Combinable, Decimal]:
    """Return a field for money; it holds every amount that `parse_amount` accepts."""
    return models.DecimalField(max_digits=MAX_DIGITS, decimal_places=PLACES, **options)


def validate_key(key: str | None) -> str | None:
    """Return the idempotency key. Raises ``ValueError`` for one that the entry cannot hold."""
    if key is not None and not (isinstance(key, str) and 0 < len(key) <= MAX_KEY_LENGTH and "\0" not in key):
        raise ValueError(f"idempotency_key must be a string of 1 to {MAX_KEY_LENGTH} characters, not {key!r}")
    return key


def key_reused_error(account: object, key: str | None, *, amount: Decimal) -> IdempotencyKeyReused:
    """Return the error for a key that was used for another operation; ``amount`` is that operation's."""
    text = gettext(
        "The idempotency key %(key)s of account %(account)s belongs to another operation, with amount %(amount)s"
    )
    return IdempotencyKeyReused(
        text % {"key": repr(key), "account": repr(account), "amount": amount},
        idempotency_key=key,
        recorded=amount,
    )


class EntryQuerySet(CompiledQuerySet[E]):
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
        __tracebackhide__ = True  # the line to be shown is the caller's
        # Without force_insert, Django would try an UPDATE first where a primary key is given.
        super().save(*args, **{**kwargs, "force_insert": True})

    @classmethod
    def check_table(cls, alias: str) -> list[CheckMessage]:
        """Warn where the table on this database has no append-only trigger; see `accounts.checks`."""
        return check_append_only(cls, alias)

    def delete(self, *args: object, **kwargs: object) -> tuple[int, dict[str, int]]:
        raise EntryIsFinal(f"{self._meta.label} {self.pk!r} is append-only: it cannot be deleted")
