"""The rows that a simulation works on, created for it and removed after it.

Runs that were killed, or used ``--keep``, leave them behind. How to know that a run is over: it holds an advisory lock,
derived from its user's name, on its own connection, from before the user exists until all rows are removed; its
workers' sessions have the same name. A process that gets the lock and finds no such session may remove the rows. If a
pooler keeps the lock's session open, the run seems to be running, and its rows stay; if it drops the lock, the workers'
sessions still show that the run is alive.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.contrib.auth import get_user_model
from django.db import DatabaseError, connections, models, transaction

from accounts.models import AbstractAccount
from accounts.operations import AppendOnly
from django_lockstep.lab.simulator.database import require_row_locks, require_tables

_BATCH = 20_000
"""Entries removed in one transaction, which keeps others from writing to the table for some 50 ms."""
_NAME = "simulate-{}"
_PATTERN = "^" + _NAME.format("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}") + "$"
_KEY = "hashtextextended('accounts.races:' || %s, 0)"


class PurgeError(Exception):
    """The rows of a simulation could not be removed."""


def new_name() -> str:
    """Return a name for a run, its user and its sessions."""
    return _NAME.format(uuid.uuid4())


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixture:
    """A new user, who owns the accounts that the simulation opens."""

    model: type[AbstractAccount]
    """The accounts' model."""
    using: str
    """The database."""
    user: Any
    """The owner of all accounts."""

    @property
    def name(self) -> str:
        """The name of the run and its user."""
        return str(self.user.get_username())

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

    @property
    def accounts(self) -> models.QuerySet[AbstractAccount]:
        """All accounts of the model on this database."""
        return self.model._base_manager.using(self.using)

    def purge(self) -> None:
        """Remove the accounts, their entries and the user. Raises `PurgeError` if the database refuses."""
        accounts = self.accounts.filter(user=self.user)
        try:
            # In batches, each in its own transaction: while the trigger is off, all other writers of the table wait.
            while self._purge_entries(accounts):
                pass
            accounts.delete()
            type(self.user)._base_manager.using(self.using).filter(pk=self.user.pk).delete()
        except (DatabaseError, models.ProtectedError) as error:
            raise PurgeError(str(error).strip()) from error

    def _purge_entries(self, accounts: models.QuerySet[AbstractAccount]) -> int:
        """Remove a batch of entries; return how many."""
        entries: Any = self.model.entry_model()
        quote = connections[self.using].ops.quote_name
        quoted, trigger = quote(entries._meta.db_table), AppendOnly.trigger
        batch = entries._base_manager.using(self.using).filter(account__in=accounts.values("pk")).order_by()
        sql, params = batch.values("pk")[:_BATCH].query.sql_with_params()
        with transaction.atomic(using=self.using), connections[self.using].cursor() as cursor:
            cursor.execute("SELECT 1 FROM pg_trigger WHERE tgrelid = %s::regclass AND tgname = %s", [quoted, trigger])
            if has_trigger := cursor.fetchone() is not None:
                # A session that waits for this table lock blocks all that request one after it, even readers.
                cursor.execute("SET LOCAL lock_timeout = '3s'")
                cursor.execute(f"ALTER TABLE {quoted} DISABLE TRIGGER {trigger}")
            # Raw SQL, because the query set's delete() refuses: entries are append-only.
            cursor.execute(f"DELETE FROM {quoted} WHERE {quote(entries._meta.pk.column)} IN ({sql})", params)
            purged = int(cursor.rowcount)
            if has_trigger:
                cursor.execute(f"ALTER TABLE {quoted} ENABLE TRIGGER {trigger}")
        return purged

    @classmethod
    def left_behind(cls, model: type[AbstractAccount], *, using: str) -> Iterator[Fixture]:
        """Yield the rows of all runs in this database, which may be over.

        Raises `SimulationError` if the database is not one for simulations.
        """
        require_row_locks(using)
        users = get_user_model()
        require_tables(using, [table._meta.app_label for table in (model, model.entry_model(), users)])
        named = users._base_manager.using(using).filter(**{f"{users.USERNAME_FIELD}__regex": _PATTERN})
        for user in named.order_by("pk"):
            if not user.has_usable_password():
                yield cls(model=model, using=using, user=user)

    def purge_if_over(self) -> bool:
        """Remove the rows unless their run is alive; return whether. Raises as `purge` does."""
        with mark_running(self.name, using=self.using, wait=False) as was_free:
            if not was_free:
                return False
            with connections[self.using].cursor() as cursor:
                # Only now: a run begins with the lock, and its workers may outlive it for a moment.
                cursor.execute(
                    "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE starts_with(application_name, %s))", [self.name]
                )
                if cursor.fetchone()[0]:
                    return False
            self.purge()
        return True


@contextlib.contextmanager
def mark_running(name: str, *, using: str, wait: bool = True) -> Iterator[bool]:
    """Mark the run of this name as alive, for the length of a block; yield whether it was not marked before.

    ``wait`` waits until it is not.
    """
    function = "pg_advisory_lock" if wait else "pg_try_advisory_lock"
    with connections[using].cursor() as cursor:
        cursor.execute(f"SELECT {function}({_KEY})", [name])
        is_held = cursor.fetchone()[0] is not False
    try:
        yield is_held
    finally:
        if is_held:
            # With a connection that was lost the lock is gone already.
            with contextlib.suppress(DatabaseError), connections[using].cursor() as cursor:
                cursor.execute(f"SELECT pg_advisory_unlock({_KEY})", [name])
