"""The rows that a simulation works on, created for it and removed after it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

from django.contrib.auth import get_user_model
from django.db import DatabaseError, connections, models, transaction

from accounts.models import AbstractAccount
from accounts.operations import AppendOnly
from accounts.races.stories import ChangeKind, Story
from accounts.strategies import Strategy
from django_lockstep.locking.triggers import trigger_name

__all__ = ["Fixture", "PurgeError"]

_BATCH = 20_000
"""Entries removed in one transaction, which keeps others from writing to the table for some 50 ms."""


class PurgeError(Exception):
    """The rows of a simulation could not be removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixture:
    """A new user, who owns the accounts that the simulation opens."""

    model: type[AbstractAccount]
    """The accounts' model."""
    using: str
    """The database."""
    user: Any
    """The owner of all accounts."""

    @classmethod
    def make(cls, model: type[AbstractAccount], *, using: str, name: str) -> Fixture:
        """Create the user of this name: one who cannot log in."""
        user_model = get_user_model()
        user = user_model(**{user_model.USERNAME_FIELD: name})
        user.set_unusable_password()
        user.save(using=using)
        return cls(model=model, using=using, user=user)

    def open_accounts(self, number: int, *, balance: Decimal, overdraft_limit: Decimal) -> tuple[Any, ...]:
        """Open and commit this number of accounts; return their keys."""
        accounts = [self.model(user=self.user, balance=balance, overdraft_limit=overdraft_limit) for _ in range(number)]
        with transaction.atomic(using=self.using):
            for account in accounts:
                account.save(using=self.using, force_insert=True)
        return tuple(account.pk for account in accounts)

    def open_for(self, story: Story) -> Any:
        """Open the account of a story; return its key."""
        return self.open_accounts(1, balance=story.balance, overdraft_limit=story.overdraft_limit)[0]

    def actor(self, strategy: Strategy, kind: ChangeKind, amount: Decimal) -> Callable[[Any], object]:
        """Return one change by the strategy, to be called with an account's key; picklable."""
        return partial(getattr(strategy, kind), amount=amount)

    def balance(self, pk: object) -> Decimal:
        """Return the account's balance."""
        return self.accounts.get(pk=pk).balance

    def is_kept(self, story: Story, pk: object) -> bool:
        """Whether the story ended on this account as it has to."""
        return story.is_kept_by(self.accounts, pk)

    @property
    def accounts(self) -> models.QuerySet[AbstractAccount]:
        """All accounts of the model on this database."""
        return self.model._base_manager.using(self.using)

    def purge(self) -> None:
        """Remove the accounts, their entries and the user. Raises `PurgeError` if the database refuses."""
        mine = self.accounts.filter(user=self.user)
        try:
            # In batches, each in its own transaction: while the trigger is off, all other writers of the table wait.
            while self._purge_entries(mine):
                pass
            mine.delete()
            type(self.user)._base_manager.using(self.using).filter(pk=self.user.pk).delete()
        except (DatabaseError, models.ProtectedError) as error:
            raise PurgeError(str(error).strip()) from error

    def _purge_entries(self, accounts: models.QuerySet[AbstractAccount]) -> int:
        """Remove a batch of entries; return how many."""
        entries: Any = self.model.entry_model()
        connection = connections[self.using]
        batch = entries._base_manager.using(self.using).filter(account__in=accounts.values("pk")).order_by()
        with transaction.atomic(using=self.using), _append_only_off(entries, using=self.using):
            # Raw SQL, because the query set's delete() refuses: entries are append-only.
            table, key = (
                connection.ops.quote_name(name) for name in (entries._meta.db_table, entries._meta.pk.column or "")
            )
            sql, params = batch.values("pk")[:_BATCH].query.sql_with_params()
            with connection.cursor() as cursor:
                cursor.execute(f"DELETE FROM {table} WHERE {key} IN ({sql})", params)
                return int(cursor.rowcount)


@contextlib.contextmanager
def _append_only_off(entries: type[models.Model], *, using: str) -> Iterator[None]:
    """Allow DELETE in the block, where the trigger exists; other writers wait until the transaction ends."""
    connection = connections[using]
    quote = connection.ops.quote_name
    table, name = quote(entries._meta.db_table), trigger_name(entries._meta.db_table, AppendOnly.suffix)
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM pg_trigger WHERE tgrelid = %s::regclass AND tgname = %s", [table, name])
        found = cursor.fetchone()
        if found:
            # A session that waits for this table lock blocks all that request one after it, even readers.
            cursor.execute("SET LOCAL lock_timeout = '3s'")
            cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER {quote(name)}")
        yield
        if found:
            cursor.execute(f"ALTER TABLE {table} ENABLE TRIGGER {quote(name)}")
