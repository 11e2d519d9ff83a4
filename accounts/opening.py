"""The opening balance of an account, from which its entries are reconciled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models

from django_lockstep.locking.memory import remembered

if TYPE_CHECKING:
    from decimal import Decimal

    from django.db.models.expressions import Combinable

    _Decimal = models.DecimalField[Decimal | int | str | Combinable | None, Decimal | None]
else:
    _Decimal = models.DecimalField  # fields cannot be subscribed at run time


class OpeningBalanceField(_Decimal):
    """The balance that an account was opened with, set when Django inserts the row and never changed afterwards.

    NULL means unknown: in rows that are older than the column, that SQL inserted, or that a fixture has without it. A
    copy of an account (``pk = None``) has no entries yet: its balance becomes its opening balance, and its
    ``entry_count`` starts at 0. A value given to a new account is kept, for imports that include entries.
    """

    def pre_save(self, model_instance: models.Model, add: bool) -> Any:
        account: Any = model_instance
        seen = remembered(account)
        is_copy = bool(seen) and seen.get(account._meta.pk.attname) != account.pk
        if add and (getattr(account, self.attname) is None or is_copy):
            setattr(account, self.attname, account.balance)
            account.entry_count = 0
        return super().pre_save(account, add)
