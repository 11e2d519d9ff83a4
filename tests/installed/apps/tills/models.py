"""Accounts with keys of the project's own, and a queue in front of them."""

import uuid

from django.db import models

from accounts.contrib.queued.abstract import AbstractQueuedChange
from accounts.models import AbstractAccount, AbstractEntry


class Till(AbstractAccount):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    cash = models.BooleanField(default=True, db_column="is cash")


class TillEntry(AbstractEntry):
    account = models.ForeignKey(Till, on_delete=models.PROTECT, related_name="entries", db_column="till")


class TillChange(AbstractQueuedChange):
    account = models.ForeignKey(Till, on_delete=models.PROTECT, related_name="queued_changes", db_constraint=False)
    target = models.ForeignKey(
        Till, on_delete=models.PROTECT, related_name="queued_arrivals", db_constraint=False, null=True
    )
