"""Every name, key and default that a project may change, and what keeps its accounts from the compiled statements."""

import uuid
from decimal import Decimal
from typing import Any

from django.db import models

from accounts.models import AbstractAccount, AbstractEntry
from django_lockstep.locking import VersionedManager


class Purse(AbstractAccount):
    """Another key, another table, other columns."""

    code = models.UUIDField(primary_key=True, default=uuid.uuid4, db_column="purse code")
    balance = models.DecimalField(max_digits=19, decimal_places=2, default=Decimal(0), db_column="coins")
    changed_on = models.DateField(auto_now=True)
    note = models.CharField(max_length=50, blank=True)
    wishes = models.JSONField(default=dict)

    class Meta(AbstractAccount.Meta):
        db_table = "purses of others"


def channel() -> str:
    return "web"


class PurseEntry(AbstractEntry):
    """Columns more, whose values only Django knows."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    account = models.ForeignKey(Purse, on_delete=models.PROTECT, related_name="entries", db_column="purse")
    channel = models.CharField(max_length=20, default=channel, db_column="via")
    booked_on = models.DateField(auto_now_add=True)

    class Meta(AbstractEntry.Meta):
        indexes = []
        ordering = ["version_after"]


class UnmadeAccount(AbstractAccount):
    """An account whose table is not made."""

    user = None  # type: ignore[assignment]

    class Meta(AbstractAccount.Meta):
        abstract = True
        managed = False
        constraints = []


class UnmadeEntry(AbstractEntry):
    class Meta(AbstractEntry.Meta):
        abstract = True
        managed = False
        constraints = []
        indexes = []


class Elsewhere(UnmadeAccount):
    """In a schema of its own."""

    class Meta(UnmadeAccount.Meta):
        db_table = 'vault"."purse'


class ElsewhereEntry(UnmadeEntry):
    account = models.ForeignKey(Elsewhere, on_delete=models.PROTECT, related_name="entries")

    class Meta(UnmadeEntry.Meta):
        db_table = 'vault"."entry'


class Shouted(models.CharField):  # type: ignore[type-arg]
    """Not read as it is stored."""

    def select_format(self, compiler: Any, sql: str, params: Any) -> tuple[str, Any]:
        return f"upper({sql})", params


class Audited(UnmadeAccount):
    """Does more when an entry is written."""

    place = Shouted(max_length=10, default="")

    def record(self, *args: Any, **kwargs: Any) -> Any:
        return super().record(*args, **kwargs)


class AuditedEntry(UnmadeEntry):
    account = models.ForeignKey(Audited, on_delete=models.PROTECT, related_name="entries")

    def save(self, *args: Any, **kwargs: Any) -> None:
        super().save(*args, **kwargs)


class OpenOnly(VersionedManager[Any]):
    """Hides accounts that are closed."""

    def get_queryset(self) -> Any:
        return super().get_queryset().filter(overdraft_limit=0)


class Closable(UnmadeAccount):
    """Shows only some of its rows."""

    objects = OpenOnly()  # type: ignore[misc]


class ClosableEntry(UnmadeEntry):
    account = models.ForeignKey(Closable, on_delete=models.PROTECT, related_name="entries")


class Premium(Elsewhere):
    """Has a table of its own besides its parent's."""

    class Meta:
        managed = False
