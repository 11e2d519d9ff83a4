"""The account: class methods that try again until they are done, and instance methods that try once."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, ParamSpec, Self, TypeVar

from django.core.exceptions import ObjectDoesNotExist
from django.db import IntegrityError

from accounts.amounts import changed_balance, parse_amount, parse_limit
from accounts.contrib.dynamodb.entries import DynamoEntry, account_key, keyed_entry_key, money, new_entry_key
from accounts.entries import key_reused_error, validate_key
from accounts.errors import InsufficientFunds
from django_lockstep.errors import StaleVersionError
from django_lockstep.locking.retry import CONFLICTS, Retry
from django_lockstep.stores import DynamoStore, Put, Update

P = ParamSpec("P")
R = TypeVar("R")


def retried(function: Callable[P, R], *, store: str) -> Callable[P, R]:
    """Return the function, which is called again for a minute where another writer was first.

    Pauses of up to half a second: a transaction of DynamoDB takes some milliseconds, and one of many writers wins.
    """
    # With the store's name in place of a database's: no transaction of a database is repeated here.
    name = DynamoStore.named(store).name
    policy = Retry(attempts=1000, wait_initial=0.01, wait_max=0.5, timeout=60, on=CONFLICTS, using=name)
    return policy(function)


@dataclass(slots=True, kw_only=True)
class DynamoAccount:
    """An account as it was read from one item of a store.

    DynamoDB has no row locks, so no writer waits for another one. Each change is one transaction of two conditional
    writes: the account's item, if it still has the version that was read, and the entry's, if its key is new. The
    class methods read again and try again; the instance methods try once and say whether they were first.

    ``store`` is a name in ``LOCKSTEP_STORES``. Where the server does not answer, all raise `StoreUnavailable`: the
    change may have been booked, and the same call with the same ``idempotency_key`` books it once.
    """

    pk: str
    """The name: 1 to 100 characters without ``#``."""
    balance: Decimal
    overdraft_limit: Decimal
    opening_balance: Decimal
    entry_count: int
    last_entry: str | None
    """The key of the newest entry."""
    version: int
    store: str = "dynamodb"

    class DoesNotExist(ObjectDoesNotExist):
        """The store has no account of this name."""

    @classmethod
    def open(cls, pk: str, *, balance: object = 0, overdraft_limit: object = 0, store: str = "dynamodb") -> Self:
        """Write a new account. Raises ``IntegrityError`` if there is one of this name, and `InvalidAmount`."""
        opening = parse_limit(balance)
        account = cls(
            pk=pk,
            balance=opening,
            overdraft_limit=parse_limit(overdraft_limit),
            opening_balance=opening,
            entry_count=0,
            last_entry=None,
            version=0,
            store=store,
        )
        version = DynamoStore.named(store).put_if_absent(account_key(pk), account.attributes())
        if version is None:
            raise IntegrityError(f"Store {store!r} already has an account {pk!r}")
        account.version = version
        return account

    @classmethod
    def get(cls, pk: str, *, store: str = "dynamodb") -> Self:
        """Return the account as the last write left it. Raises `DoesNotExist`."""
        item = DynamoStore.named(store).read(account_key(pk))
        if item is None:
            raise cls.DoesNotExist(f"Store {store!r} has no account {pk!r}")
        attributes = item.attributes
        amounts = {name: money(attributes[name]) for name in ("balance", "overdraft_limit", "opening_balance")}
        count = int(attributes["entry_count"])
        return cls(
            pk=pk, **amounts, entry_count=count, last_entry=attributes["last_entry"], version=item.version, store=store
        )

    # Until it is done. There is no lock to wait for: the second writer's transaction fails, and it reads again.

    @classmethod
    def deposit(cls, pk: str, amount: object, *, idempotency_key: str | None = None, store: str = "dynamodb") -> Self:
        """Read the account, add the amount, write it with the entry if nobody else has written; return the account.

        Where somebody has, reads and tries again, for a minute at most. A second call with the same ``idempotency_key``
        and amount changes nothing and returns the account as the first call left it, also when both run at once.

        Raises `InvalidAmount` before any request, `DoesNotExist`, `IdempotencyKeyReused`, `RetriesExhausted`,
        `StoreUnavailable`.
        """
        return cls._change((pk,), parse_amount(amount), idempotency_key, store=store)[0]

    @classmethod
    def withdraw(cls, pk: str, amount: object, *, idempotency_key: str | None = None, store: str = "dynamodb") -> Self:
        """Subtract the amount; as `deposit`, and raises `InsufficientFunds` below the overdraft limit."""
        return cls._change((pk,), -parse_amount(amount), idempotency_key, store=store)[0]

    @classmethod
    def transfer(
        cls,
        source_pk: str,
        target_pk: str,
        amount: object,
        *,
        idempotency_key: str | None = None,
        store: str = "dynamodb",
    ) -> tuple[Self, Self]:
        """Move the amount between two accounts in one transaction of four writes; return (source, target).

        In everything else as `withdraw`; the idempotency key is the source account's. Raises ``ValueError`` for one
        account as source and target.
        """
        if source_pk == target_pk:
            raise ValueError(f"A transfer needs two accounts, but source and target are both {source_pk!r}")
        pks = (source_pk, target_pk)
        source, target = cls._change(pks, -parse_amount(amount), idempotency_key, store=store)
        return source, target

    @classmethod
    def _change(cls, pks: tuple[str, ...], amount: Decimal, key: str | None, *, store: str) -> tuple[Self, ...]:
        """Add the amount to the first account, and take it off the second if there is one; return them."""
        _require_key(pks[0], key)

        def attempt() -> tuple[Self, ...]:
            accounts = tuple(cls.get(pk, store=store) for pk in pks)
            if not accounts[0]._attempt(amount, key, *accounts[1:]):
                expected = accounts[0].version if len(pks) == 1 else None
                raise StaleVersionError(pk=pks[0] if len(pks) == 1 else list(pks), expected=expected)
            return accounts

        return retried(attempt, store=store)()

    # Once: the caller reads again and decides again.

    def try_deposit(self, amount: object, *, idempotency_key: str | None = None) -> bool:
        """Add the amount if the account still has this instance's version, in one transaction with its entry.

        True: done, and the instance has the new balance and version. False: another writer was first, nothing was
        written, and the instance is unchanged; call `refresh` and decide again. A key that was used for the same amount
        returns True with the balance and version of that time. Raises as `deposit` does.
        """
        return self._try_change(parse_amount(amount), idempotency_key)

    def try_withdraw(self, amount: object, *, idempotency_key: str | None = None) -> bool:
        """Subtract the amount; as `try_deposit`, and raises `InsufficientFunds` if this instance is up to date."""
        return self._try_change(-parse_amount(amount), idempotency_key)

    def _try_change(self, amount: Decimal, key: str | None) -> bool:
        _require_key(self.pk, key)
        try:
            done = self._attempt(amount, key)
        except InsufficientFunds:
            # A stale balance proves nothing: the current one may cover the amount.
            if self._current().version != self.version:
                return False
            raise
        if not done:
            self._current()  # raises DoesNotExist where the account is gone
        return done

    def _attempt(self, amount: Decimal, key: str | None, to: Self | None = None) -> bool:
        """Book once, or find that the key was used; False if another writer was first."""
        # Looked for after the account was read: an entry that is still missing is not in that balance, so that a
        # refusal for want of funds is about a state without it.
        if self._replay_if_done(amount, key, to=to):
            return True
        transfer = None if to is None else uuid.uuid4().hex
        update, put = self.writes(amount, idempotency_key=key, transfer=transfer)
        arrival = to.writes(-amount, transfer=transfer) if to else ()
        # In one transaction there is no order to keep: opposite transfers conflict, and never deadlock.
        if not DynamoStore.named(self.store).transact([update, put, *arrival]):
            return False
        self._accept_written(update)
        if to and arrival:
            to._accept_written(arrival[0])
        return True

    def refresh(self) -> None:
        """Read the account again into this instance. Raises `DoesNotExist`."""
        current = self._current()
        for field in fields(self):
            setattr(self, field.name, getattr(current, field.name))

    def entries(self) -> Iterator[DynamoEntry]:
        """Yield the entries up to the one that this instance was read with, the newest first, each by one read.

        Ends early where one is gone.
        """
        key = self.last_entry
        # As many as there are, and no more: entries that somebody has tampered with may form a circle.
        for _ in range(self.entry_count):
            entry = None if key is None else DynamoEntry.read(key, store=self.store)
            if entry is None:
                return
            yield entry
            key = entry.previous

    def attributes(self) -> dict[str, Any]:
        """Return what the account's item has besides its key and version."""
        names = ("balance", "overdraft_limit", "opening_balance", "entry_count", "last_entry")
        return {name: getattr(self, name) for name in names}

    def writes(
        self, amount: Decimal, *, idempotency_key: str | None = None, transfer: str | None = None
    ) -> tuple[Update, Put]:
        """Return the two writes of a change by a signed amount: of the account, if unchanged, and of its new entry.

        Raises `InsufficientFunds` and `InvalidAmount`.
        """
        name = f"Account {self.pk!r}"
        balance = changed_balance(self.balance, amount, overdraft_limit=self.overdraft_limit, account=name)
        if idempotency_key is None:
            key = new_entry_key(self.pk, transfer or uuid.uuid4().hex)
        else:
            key = keyed_entry_key(self.pk, idempotency_key)
        entry = DynamoEntry(
            key=key,
            amount=amount,
            balance_after=balance,
            version_after=self.version + 1,
            transfer=transfer,
            previous=self.last_entry,
            created_at=datetime.now(UTC).isoformat(),
        )
        written = {"balance": balance, "entry_count": self.entry_count + 1, "last_entry": key}
        return Update(account_key(self.pk), written, self.version), Put(key, entry.attributes())

    def _current(self) -> Self:
        return self.get(self.pk, store=self.store)

    def _accept_written(self, update: Update) -> None:
        changes: dict[str, Any] = dict(update.changes)
        for name, value in (*changes.items(), ("version", update.version + 1)):
            setattr(self, name, value)

    def _replay_if_done(self, amount: Decimal, key: str | None, *, to: Self | None = None) -> bool:
        """Whether the key was used before; if so, give the instances the balances and versions of that time.

        False without a key. Raises `IdempotencyKeyReused` if the key was used for another operation.
        """
        first = None if key is None else DynamoEntry.read(keyed_entry_key(self.pk, key), store=self.store)
        if first is None:
            return False
        arrived = None
        if to is not None and first.transfer is not None:
            arrived = DynamoEntry.read(new_entry_key(to.pk, first.transfer), store=self.store)
        if first.amount != amount or (first.transfer is None) != (to is None) or (to and not arrived):
            raise key_reused_error(self.pk, key, amount=first.amount)
        for account, entry in ((self, first), (to, arrived)):
            if account and entry:
                # With a newer version than its other values were read with, it could overwrite what changed since.
                account.refresh()
                account.balance, account.version = entry.balance_after, entry.version_after
        return True


def _require_key(pk: str, idempotency_key: str | None) -> None:
    """Raise ``ValueError``, before any request, for an idempotency key that no entry can have."""
    if (key := validate_key(idempotency_key)) is not None:
        keyed_entry_key(pk, key)
