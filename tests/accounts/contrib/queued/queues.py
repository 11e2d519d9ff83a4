"""Queues of a project's own. Their app is not installed: a test that wants the table makes it."""

import uuid
from typing import Any

from django.db import models
from django.db.models.functions import Upper

from accounts.contrib.queued.abstract import AbstractQueuedChange
from accounts.models import Account


def channel() -> str:
    return "web"


class OwnChange(AbstractQueuedChange):
    """Another key, and columns more, whose values only Django knows."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    account = models.ForeignKey(Account, models.PROTECT, related_name="+", db_constraint=False)
    target = models.ForeignKey(Account, models.PROTECT, related_name="+", db_constraint=False, null=True)
    note = models.CharField(max_length=20, default="")
    channel = models.CharField(max_length=20, null=True, default=channel, db_column="via")  # noqa: DJ001
    wishes = models.JSONField(default=dict)
    noted_on = models.DateField(auto_now_add=True)
    weight = models.IntegerField(db_default=7)

    class Meta(AbstractQueuedChange.Meta):
        app_label = "queues"


class SavedChange(OwnChange):
    """Does more when it is saved."""

    class Meta:
        app_label = "queues"
        proxy = True

    def save(self, *args: Any, **kwargs: Any) -> None:
        self.note = "saved"
        super().save(*args, **kwargs)


class ComputedChange(OwnChange):
    """Leaves a value to the database."""

    class Meta:
        app_label = "queues"
        proxy = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not args:
            self.note = Upper(models.Value("computed"))
