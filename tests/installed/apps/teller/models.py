"""Accounts with fields, keys and tables of the project's own, and users who are known by their address."""

import uuid
from typing import Any, ClassVar

from django.contrib.auth.base_user import BaseUserManager
from django.contrib.auth.models import AbstractUser
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


class PersonManager(BaseUserManager["Person"]):
    """Makes users who have no name to log in with."""

    def create_superuser(self, email: str, **values: Any) -> "Person":
        return self.create(email=email, is_staff=True, is_superuser=True, **values)


class Person(AbstractUser):
    """A user whose e-mail address is the name to log in with; there are none in projects that keep Django's users."""

    username = None  # type: ignore[assignment]
    email = models.EmailField(unique=True)

    USERNAME_FIELD = "email"
    REQUIRED_FIELDS: ClassVar[list[str]] = []

    objects: ClassVar[PersonManager] = PersonManager()  # type: ignore[assignment]

    class Meta(AbstractUser.Meta):
        swappable = "AUTH_USER_MODEL"
