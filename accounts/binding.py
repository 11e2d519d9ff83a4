"""The base class of all strategies: account model, database, and entries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from decimal import Decimal
from importlib.util import find_spec
from typing import Any, ClassVar, TypeVar

from django.apps import apps
from django.core.exceptions import FieldDoesNotExist
from django.db import router, transaction
from django.db.models import F
from django.db.models.expressions import Combinable
from django.utils import timezone

from accounts import models
from accounts.abstract import AccountQuerySet
from accounts.amounts import parse_amount
from accounts.models import AbstractAccount
from django_lockstep.locking.fields import parents_of
from django_lockstep.locking.retry import retry_on_conflict

R = TypeVar("R")


def account_model(label: str) -> type[AbstractAccount]:
    """Return the installed account model with this label. Raises ``ValueError`` unless it is one, with entries."""
    try:
        model = apps.get_model(label)
    except (LookupError, ValueError) as error:
        raise ValueError(f"--model {label}: no such model ({error})") from error
    if not issubclass(model, AbstractAccount):
        raise ValueError(  # noqa: TRY004 - it is the option's value that is wrong
            f"--model {label}: it is not a subclass of accounts.models.AbstractAccount"
        )
    try:
        model.entry_model()
    except FieldDoesNotExist as error:
        raise ValueError(f"--model {label}: no entry model refers to it with related_name='entries'") from error
    return model


# One policy for all strategies that retry, so that their figures can be compared; many attempts, because on a hot row
# only one writer wins each time. The pauses are random and grow.
@retry_on_conflict(attempts=1000, wait_initial=0.001, wait_max=0.1, timeout=60)
def run_retried(work: Callable[..., R], *args: object) -> R:
    """Run the transaction, and again as a whole when it met a conflict."""
    return work(*args)


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way to change a balance, bound to an account model."""

    account_model: type[AbstractAccount] | None = None
    """The accounts that it changes; None means `Account`, which need not be installed where another model is used."""
    using: str | None = None
    """The database; None asks the router."""

    name: ClassVar[str]
    """The name in commands and reports."""
    summary: ClassVar[str]
    """What it does, in a sentence."""
    safe: ClassVar[bool] = True
    """Whether it is meant to lose no update."""
    in_key_order: ClassVar[bool] = True
    """Whether a transfer changes its accounts in primary-key order, so that opposite transfers do not deadlock."""
    retries: ClassVar[bool] = False
    """Whether a conflict repeats the whole transaction, see `run_retried`."""
    needs_all_writers: ClassVar[bool] = False
    """Whether ``safe`` holds only while every writer of an account uses it: others do not wait for its lock."""
    package: ClassVar[str | None] = None
    """The module of another package that it needs."""

    def __post_init__(self) -> None:
        # Multi-table inheritance: the balance is in the parent's table, which a filtered update() would not guard.
        if self.account_model is not None and parents_of(self.account_model):
            raise ValueError(
                f"{self.account_model._meta.label} has its columns in several tables, but update() guards only one"
            )

    def bound(self, *, model: type[AbstractAccount] | None = None, using: str | None = None) -> Strategy:
        """Return the same strategy for another account model or database.

        Raises ``ValueError`` for a model that inherits from another table.
        """
        return replace(self, account_model=model or self.account_model, using=using or self.using)

    @property
    def is_installed(self) -> bool:
        """Whether the package is there that it needs."""
        return self.package is None or find_spec(self.package) is not None

    @property
    def model(self) -> type[AbstractAccount]:
        """The accounts that it changes."""
        # Looked up here: the module has `Account` only where the app is installed.
        return models.Account if self.account_model is None else self.account_model

    def deposit(self, pk: object, amount: object) -> AbstractAccount:
        """Add the amount; return the account as written. Raises as `Account.deposit` does."""
        return self._run(self._change_once, self.model.parse_key(pk), parse_amount(amount))

    def withdraw(self, pk: object, amount: object) -> AbstractAccount:
        """Take the amount off; return the account as written. Raises as `Account.withdraw` does."""
        return self._run(self._change_once, self.model.parse_key(pk), -parse_amount(amount))

    def transfer(self, source_pk: object, target_pk: object, amount: object) -> None:
        """Move the amount between two accounts. Raises as `Account.transfer` does."""
        moved = parse_amount(amount)
        source, target = self.model.parse_key(source_pk), self.model.parse_key(target_pk)
        self.model.require_two(source, target)
        self._run(self._move_once, {source: -moved, target: moved})

    def _run(self, work: Callable[..., R], *args: object) -> R:
        return run_retried(work, *args) if self.retries else work(*args)

    def _change_once(self, pk: Any, amount: Decimal) -> AbstractAccount:
        with self.transaction():
            return self.change(pk, amount)

    def _move_once(self, amounts: Mapping[Any, Decimal]) -> None:
        with self.transaction():
            self.move(amounts)

    def transaction(self) -> AbstractContextManager[Any]:
        """Return the transaction in which a change or a transfer runs."""
        return transaction.atomic(self.alias)

    def change(self, pk: Any, amount: Decimal) -> AbstractAccount:
        """Add a signed amount to one account, in the transaction that is open; return it as written."""
        raise NotImplementedError

    def move(self, amounts: Mapping[Any, Decimal]) -> None:
        """Add signed amounts to several accounts, in the transaction that is open."""
        for pk, amount in sorted(amounts.items()) if self.in_key_order else amounts.items():
            self.change(pk, amount)

    @property
    def alias(self) -> str:
        """The database alias that it writes to."""
        return self.using or router.db_for_write(self.model)

    @property
    def accounts(self) -> AccountQuerySet[AbstractAccount]:
        """Every account on the database, including those that the default manager hides; reading takes no lock."""
        return AccountQuerySet(self.model, using=self.alias)

    def values(self, balance: Decimal | Combinable) -> dict[str, Any]:
        """Return what an UPDATE sets besides the version when an entry follows it."""
        return {"balance": balance, "entry_count": F("entry_count") + 1, "updated_at": timezone.now()}

    def write_entry(self, account: AbstractAccount, amount: Decimal) -> AbstractAccount:
        """Insert the entry of a change whose UPDATE has increased version and count by one; return the account."""
        # The UPDATE computed version and count in the database; the instance, and from it the entry, take the values
        # that follow from what was read.
        account.book(amount)
        account.version += 1
        account.record(amount)
        return account
