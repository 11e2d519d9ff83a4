"""The store on DynamoDB."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from django_lockstep.stores.dynamodb.items import DynamoItems
from django_lockstep.stores.dynamodb.leases import DynamoLeases
from django_lockstep.stores.dynamodb.options import parse_options
from django_lockstep.stores.dynamodb.tables import IAM_ACTIONS, IAM_ACTIONS_OF_CREATE, create_table, table_problem

__all__ = ["DynamoStore"]


class DynamoStore(DynamoLeases, DynamoItems):
    """Leases and items in one table, whose key is the string ``pk``."""

    @classmethod
    def from_options(cls, name: str, options: Mapping[str, Any]) -> Self:
        """Return the store for its options in ``LOCKSTEP_STORES``; sends nothing."""
        return cls(name, parse_options(options))

    @property
    def table(self) -> str:
        """The name of the table."""
        return self._table

    @property
    def client(self) -> Any:
        """boto3's low-level client, for requests of one's own."""
        return self._client.raw

    def create(self) -> bool:
        """Create the table; return False if there was one."""
        return create_table(self._client, self._table)

    def problem(self) -> str:
        """Return what is wrong with the table; empty if nothing is."""
        return table_problem(self._client, self._table)

    def permissions(self) -> list[str]:
        """Return the IAM actions that the store needs, and those that `create` needs in addition."""
        return [*IAM_ACTIONS, *IAM_ACTIONS_OF_CREATE]
