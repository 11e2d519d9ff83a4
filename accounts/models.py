"""The account and its entries, ready to install."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from accounts.abstract import AbstractAccount, AbstractEntry


class Account(AbstractAccount):
    """A user's account; everything it does is in `AbstractAccount`."""

    class Meta(AbstractAccount.Meta):
        verbose_name = _("account")
        verbose_name_plural = _("accounts")


class Entry(AbstractEntry):
    """One change of an `Account`."""

    # No index of its own: the chain's index begins with the account.
    account = models.ForeignKey(
        Account, on_delete=models.PROTECT, related_name="entries", db_index=False, verbose_name=_("account")
    )

    class Meta(AbstractEntry.Meta):
        # The same under every label of the app, for its migration.
        indexes = [models.Index(fields=["account", "id"], name="accounts_entry_chain")]
        verbose_name = _("entry")
        verbose_name_plural = _("entries")
