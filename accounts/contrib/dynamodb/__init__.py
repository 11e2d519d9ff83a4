"""The account on Amazon DynamoDB: balance and version on one item, each entry an item, both in one transaction.

It stands on `django_lockstep.stores`, and so works on each of its stores; only `chain_breaks` needs DynamoDB. Nothing
here needs a table of the project's database, or the app ``accounts`` in ``INSTALLED_APPS``.
"""

from typing import TYPE_CHECKING

from django_lockstep.lazy import lazy_exports

if TYPE_CHECKING:
    from accounts.contrib.dynamodb.accounts import DynamoAccount
    from accounts.contrib.dynamodb.entries import DynamoEntry
    from accounts.contrib.dynamodb.reconciliation import account_breaks, chain_breaks

__all__ = ["DynamoAccount", "DynamoEntry", "account_breaks", "chain_breaks"]

__getattr__, __dir__ = lazy_exports(__name__, "entries", "accounts", "reconciliation")
