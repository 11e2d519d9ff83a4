"""Accounts with fields, keys and tables of the project's own."""

import uuid

from django.db import models

from accounts.models import AbstractAccount, AbstractEntry


class Wallet(AbstractAccount):
    """A user's money in one currency."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    currency = models.CharField(max_length=3, default="EUR")
    nickname = models.CharField(max_length=50, blank=True)

    class Meta(AbstractAccount.Meta):
        db_table = "acme_wallet"


class WalletEntry(AbstractEntry):
    """One change of a wallet, and who asked for it."""

    account = models.ForeignKey(Wallet, on_delete=models.PROTECT, related_name="entries")
    channel = models.CharField(max_length=20, default="web")

    class Meta(AbstractEntry.Meta):
        db_table = "acme_wallet_entry"
