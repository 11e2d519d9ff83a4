"""Accounts with a field more, and a key that is no number."""

import uuid

from django.db import models

from accounts.models import AbstractAccount, AbstractEntry


class Wallet(AbstractAccount):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    currency = models.CharField(max_length=3, default="EUR")

    class Meta(AbstractAccount.Meta):
        app_label = "wallets"


class Receipt(AbstractEntry):
    account = models.ForeignKey(Wallet, on_delete=models.PROTECT, related_name="entries", db_index=False)

    class Meta(AbstractEntry.Meta):
        app_label = "wallets"
