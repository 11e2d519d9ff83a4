"""Compares balances with their entries on DynamoDB, with the findings of `accounts.reconciliation`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

from accounts.contrib.dynamodb.accounts import DynamoAccount
from accounts.contrib.dynamodb.entries import LEDGER, DynamoEntry, account_of, is_account
from accounts.reconciliation import ChainBreak, breaks_at
from django_lockstep.stores.dynamodb.store import DynamoStore


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
            yield ChainBreak(kind="count", account=pk, entry=None, expected=0, stored=entries)
        else:
            yield from account_breaks(account, stored=entries)


def account_breaks(account: DynamoAccount, *, stored: int = 0) -> Iterator[ChainBreak]:
    """Yield the breaks of one account's chain, the newest first.

    A snapshot without any lock: the account was read at one time, and the entries that it had then never change.
    ``stored`` is how many entries were counted before the account was read; more than it knows of is a break.
    """
    chain = list(account.entries())
    missing = len(chain) < account.entry_count
    of_account: dict[str, Any] = {
        "pk": account.pk,
        "balance": account.balance,
        "version": account.version,
        # Where an entry is missing, the balance before it says nothing about the account's.
        "opening_balance": None if missing else account.opening_balance,
        "entry_count": account.entry_count,
        "chain_length": max(len(chain), stored),
    }
    following = None
    entries: list[DynamoEntry | None] = [*chain] or [None]
    for entry, before in zip_longest(entries, chain[1:]):
        yield from breaks_at(
            {
                **of_account,
                "chain_pk": entry and entry.key,
                "chain_amount": entry and entry.amount,
                "chain_balance_after": entry and entry.balance_after,
                "chain_version_after": entry and entry.version_after,
                "chain_before": before and before.balance_after,
                "chain_version": before and before.version_after,
                "chain_following": following,
            }
        )
        following = entry and entry.key
    if missing:
        oldest = chain[-1].key if chain else None
        yield ChainBreak(
            kind="count", account=account.pk, entry=oldest, expected=account.entry_count, stored=len(chain)
        )
