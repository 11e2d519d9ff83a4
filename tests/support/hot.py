"""Hot accounts, dressed as strategies: what holds of every strategy is to hold of them."""

from dataclasses import dataclass
from decimal import Decimal
from itertools import accumulate
from typing import Any, Protocol

from accounts.contrib.queued.consuming import drain
from accounts.contrib.queued.models import QueuedChange
from accounts.contrib.slotted.models import Slot, SlotEntry, SlottedAccount
from accounts.models import Account, Entry
from accounts.reconciliation import chain_breaks
from tests.support.factories import AccountFactory, UserFactory

__all__ = ["FULL", "HOT", "Books", "books_of"]


FULL = "99999999999999999.00"
"""A balance that takes no more."""


class Books(Protocol):
    """What was written, whatever the tables are."""

    def open(self, **values: Any) -> Any:
        """Open an account, with a balance and an overdraft limit."""

    def open_full(self) -> Any:
        """Open one that takes no more."""

    def balance(self, account: Any) -> Decimal:
        """Return what it has now."""

    def state(self, account: Any) -> tuple[str, int]:
        """Return balance and version."""

    def entries(self) -> list[tuple[str, str, int]]:
        """Return amount, balance after and version after of every change."""

    def breaks(self) -> list[Any]:
        """Return where a chain of entries does not fit."""


class AccountBooks:
    """Where the strategies write."""

    def open_full(self) -> Any:
        return self.open(balance=FULL)

    def open(self, **values: Any) -> Any:
        return AccountFactory.create(**values)

    def balance(self, account: Any) -> Decimal:
        current: Decimal = Account.objects.get(pk=account.pk).balance
        return current

    def state(self, account: Any) -> tuple[str, int]:
        account.refresh_from_db()
        return str(account.balance), account.version

    def entries(self) -> list[tuple[str, str, int]]:
        return [(str(each.amount), str(each.balance_after), each.version_after) for each in Entry.objects.all()]

    def breaks(self) -> list[Any]:
        return list(chain_breaks(Account))


class SlottedBooks:
    """Where slotted accounts are: what several slots had a part in is one change."""

    def open(self, **values: Any) -> Any:
        account = SlottedAccount.open(UserFactory.create(), size=3, **values)
        self.opening = account.balance
        return account

    def open_full(self) -> Any:
        return SlottedAccount.open(UserFactory.create(), size=1, balance=FULL)

    def balance(self, account: Any) -> Decimal:
        current: Decimal = SlottedAccount.objects.get(pk=account.pk).balance
        return current

    def state(self, account: Any) -> tuple[str, int]:
        return str(self.balance(account)), len(self.entries()) + 1

    def entries(self) -> list[tuple[str, str, int]]:
        rows = SlotEntry.objects.order_by("pk").values_list("transfer", "account__account", "pk", "amount")
        changes: dict[Any, Decimal] = {}
        for transfer, account, pk, amount in rows:
            changes[transfer or pk, account] = changes.get((transfer or pk, account), Decimal(0)) + amount
        amounts = list(changes.values())
        balances = accumulate(amounts, initial=self.opening)
        return [
            (str(amount), str(balance), version)
            for version, (amount, balance) in enumerate(zip(amounts, list(balances)[1:], strict=True), start=2)
        ]

    def breaks(self) -> list[Any]:
        return list(chain_breaks(Slot))


@dataclass(frozen=True)
class Seen:
    """What is there after a change."""

    pk: Any
    balance: Decimal
    version: int


class Slotted:
    """`SlottedAccount` as a strategy."""

    name = "slotted"
    safe = True
    books = SlottedBooks()

    def deposit(self, pk: Any, amount: Any) -> Seen:
        SlottedAccount.deposit(pk, amount)
        return self._seen(pk)

    def withdraw(self, pk: Any, amount: Any) -> Seen:
        SlottedAccount.withdraw(pk, amount)
        return self._seen(pk)

    def transfer(self, source: Any, target: Any, amount: Any) -> None:
        SlottedAccount.transfer(source, target, amount)

    def _seen(self, pk: Any) -> Seen:
        balance, version = self.books.state(SlottedAccount.objects.get(pk=pk))
        return Seen(pk, Decimal(balance), version)


class Queued:
    """`QueuedChange` as a strategy: whoever appends a change sees to it that it is applied."""

    name = "queued"
    safe = True

    def deposit(self, pk: Any, amount: Any) -> Seen:
        return self._seen(QueuedChange.deposit(pk, amount))

    def withdraw(self, pk: Any, amount: Any) -> Seen:
        return self._seen(QueuedChange.withdraw(pk, amount))

    def transfer(self, source: Any, target: Any, amount: Any) -> None:
        self._seen(QueuedChange.transfer(source, target, amount))

    def _seen(self, change: QueuedChange) -> Seen:
        drain(QueuedChange)
        change.wait()
        assert change.balance_after is not None
        assert change.version_after is not None
        return Seen(change.account_id, change.balance_after, change.version_after)


HOT: dict[str, Any] = {way.name: way for way in (Slotted(), Queued())}
"""Every way, by name."""

_ACCOUNTS = AccountBooks()


def books_of(strategy: Any) -> Books:
    """Return where it writes."""
    books: Books = getattr(strategy, "books", _ACCOUNTS)
    return books
