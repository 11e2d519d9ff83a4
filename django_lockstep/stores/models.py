"""Items on PostgreSQL, and the tokens of transactions that were done."""

from __future__ import annotations

from django.db import models

from django_lockstep.stores.terms import LONGEST

__all__ = ["StoredItem", "StoredToken"]


class StoredItem(models.Model):
    """An item; only the module `postgresql` writes rows."""

    key = models.CharField(max_length=LONGEST, primary_key=True)
    version = models.BigIntegerField()
    attributes = models.JSONField()
    """In DynamoDB's typed form, so that numbers stay decimal."""

    class Meta:
        default_permissions = ("view",)

    def __str__(self) -> str:
        return self.key


class StoredToken(models.Model):
    """A transaction's idempotency token, and the digest of what it wrote."""

    token = models.CharField(max_length=36, primary_key=True)
    digest = models.CharField(max_length=64)
    created_at = models.DateTimeField(db_index=True)

    class Meta:
        default_permissions = ("view",)

    def __str__(self) -> str:
        return self.token
