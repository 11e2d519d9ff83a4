"""Compares balances with their entries on DynamoDB, with the findings of `accounts.reconciliation`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from accounts.contrib.dynamodb.accounts import DynamoAccount
from accounts.contrib.dynamodb.entries import DynamoEntry
from accounts.contrib.dynamodb.keys import LEDGER, account_of, is_account
from accounts.reconciliation import ChainBreak
from django_lockstep.stores.dynamodb.store import DynamoStore

__all__ = ["account_breaks", "chain_breaks"]


def chain_breaks(*, store: str = "dynamodb") -> Iterator[ChainBreak]:
    """Yield every break of every account's chain, by account; nothing if all balances match their entries.

    Changes may go on meanwhile, and none is reported as a break. The whole table is read once, for the accounts and
    for the number of entries that each has; then `account_breaks` follows each account's entries, one read for each.
    An entry that is in no chain is noticed by that number, unless others were booked during the run.

    Raises ``ValueError`` for a store that is not on DynamoDB.
    """
    stored: Counter[str] = Counter()
    for key in DynamoStore.named(store).keys(LEDGER):
        stored[account_of(key)] += not is_account(key)
    for pk, entries in sorted(stored.items()):
        try:
            account = DynamoAccount.get(pk, store=store)
        except DynamoAccount.DoesNotExist:
            yield from _miscounted(pk, None, expected=0, found=entries)
        else:
            yield from account_breaks(account, stored=entries)


def account_breaks(account: DynamoAccount, *, stored: int = 0) -> Iterator[ChainBreak]:
    """Yield the breaks of one account's chain, the newest first.

    A snapshot without any lock: the account was read at one time, and the entries that it had then never change.
    ``stored`` is how many entries were counted before the account was read; more than it knows of is a break.
    """
    chain = list(account.entries())
    newest, oldest = (chain[0], chain[-1]) if chain else (None, None)
    yield from _breaks_at_the_end(account, newest)
    for later, earlier in pairwise(chain):
        yield from _breaks_between(account.pk, earlier, later)
    if len(chain) < account.entry_count:
        yield from _miscounted(account.pk, oldest, expected=account.entry_count, found=len(chain))
        return
    if oldest is not None and (found := oldest.balance_after - oldest.amount) != account.opening_balance:
        yield ChainBreak(
            kind="opening", account=account.pk, entry=oldest.key, expected=account.opening_balance, found=found
        )
    yield from _miscounted(account.pk, newest, expected=account.entry_count, found=max(len(chain), stored))


def _breaks_at_the_end(account: DynamoAccount, newest: DynamoEntry | None) -> Iterator[ChainBreak]:
    if newest is None:
        last, entry = account.opening_balance, None
    else:
        last, entry = newest.balance_after, newest.key
        if newest.version_after > account.version:
            found = newest.version_after
            yield ChainBreak(kind="version", account=account.pk, entry=entry, expected=account.version, found=found)
    # Where an entry is missing, the balance before it says nothing about the account's.
    if last != account.balance and (newest or not account.entry_count):
        yield ChainBreak(kind="balance", account=account.pk, entry=entry, expected=last, found=account.balance)


def _breaks_between(pk: str, earlier: DynamoEntry, later: DynamoEntry) -> Iterator[ChainBreak]:
    if later.balance_after != (expected := earlier.balance_after + later.amount):
        yield ChainBreak(kind="entry", account=pk, entry=later.key, expected=expected, found=later.balance_after)
    if later.version_after <= earlier.version_after:
        least, found = earlier.version_after + 1, later.version_after
        yield ChainBreak(kind="version", account=pk, entry=later.key, expected=least, found=found)


def _miscounted(pk: str, entry: DynamoEntry | None, *, expected: int, found: int) -> Iterator[ChainBreak]:
    if found != expected:
        key = None if entry is None else entry.key
        yield ChainBreak(kind="count", account=pk, entry=key, expected=expected, found=found)
