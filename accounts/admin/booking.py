"""Forms for deposits, withdrawals and transfers: each is applied once, with the chosen locking."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType
from typing import Any

from django import forms
from django.db import connections, router, transaction
from django.utils.translation import gettext_lazy as _

from accounts.fields import MoneyField
from accounts.models import AbstractAccount
from django_lockstep.admin.tokens import FIELD, Seen
from django_lockstep.errors import StaleVersionError

__all__ = ["FORMS", "BookingForm", "BookingRequest"]

OPTIMISTIC, PESSIMISTIC = "optimistic", "pessimistic"

WAIT = 5
"""Seconds for which a page waits for an account that another session has locked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BookingRequest:
    """A request for one operation on one account."""

    operation: str
    """``deposit``, ``withdraw`` or ``transfer``."""
    account: AbstractAccount
    """The account; the source of a transfer."""
    amount: Decimal
    """The positive amount."""
    key: str
    """The idempotency key."""
    version: int
    """The version of the account that was shown."""
    target: AbstractAccount | None = None
    """The target of a transfer."""

    def book(self, locking: str) -> AbstractAccount:
        """Perform the operation, unless its key was used before; return the account after it.

        ``pessimistic`` waits for the row, at most `WAIT` seconds. ``optimistic`` raises `StaleVersionError` if the
        account has another version than the form showed; a transfer compares the source's version under the locks of
        both rows. Raises the errors of `AbstractAccount.withdraw` and `AbstractAccount.transfer`.
        """
        if self.target is not None:
            return self._transfer(self.target, expected=self.version if locking == OPTIMISTIC else None)
        if locking == OPTIMISTIC:
            return self._try()
        change = getattr(self.model, self.operation)
        account: AbstractAccount = change(self.account.pk, self.amount, idempotency_key=self.key, timeout=self._wait)
        return account

    @property
    def model(self) -> type[AbstractAccount]:
        return type(self.account)

    @property
    def _wait(self) -> float | None:
        """The lock timeout; other databases than PostgreSQL do not support one."""
        return WAIT if connections[router.db_for_write(self.model)].vendor == "postgresql" else None

    def _try(self) -> AbstractAccount:
        account = self.model._default_manager.get(pk=self.account.pk)
        # Not the version just read: the user decided on the one that the form showed.
        account.version = self.version
        if not getattr(account, f"try_{self.operation}")(self.amount, idempotency_key=self.key):
            raise StaleVersionError(model=self.model, pk=account.pk, expected=self.version, target=account)
        return account

    def _transfer(self, target: AbstractAccount, *, expected: int | None) -> AbstractAccount:
        # The version is compared after the transfer, when both rows are locked; the exception rolls it back.
        with transaction.atomic(using=router.db_for_write(self.model)):
            source, _target = self.model.transfer(
                self.account.pk, target.pk, self.amount, idempotency_key=self.key, timeout=self._wait
            )
            if expected is not None and source.version != expected + 1:
                raise StaleVersionError(model=self.model, pk=source.pk, expected=expected, target=source)
        return source

    def entries(self) -> list[Any]:
        """Return the entries that were written, the account's own first."""
        entries: Any = self.model.entry_model()._default_manager
        own = entries.get(account_id=self.account.pk, idempotency_key=self.key)
        return [own, *entries.filter(transfer=own.transfer, transfer__isnull=False).exclude(pk=own.pk)]


class BookingForm(forms.Form):
    """An amount, and the kind of locking."""

    amount = MoneyField(label=_("Amount"), decimal_places=2, min_value=Decimal("0.01"), localize=True)
    locking = forms.ChoiceField(
        label=_("Locking"),
        initial=PESSIMISTIC,
        widget=forms.RadioSelect,
        choices=[
            (PESSIMISTIC, _("Pessimistic: wait for the account, and book even if it has changed in the meantime")),
            (OPTIMISTIC, _("Optimistic: book only if the account still has the version shown here")),
        ],
    )
    idempotency_key = forms.CharField(widget=forms.HiddenInput, max_length=255)
    _seen: Any = forms.CharField(widget=forms.HiddenInput, required=False)  # its name is FIELD

    def __init__(self, *args: Any, account: AbstractAccount, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.account = account
        # One key for each form that is shown: submitting it twice books once.
        self.fields["idempotency_key"].initial = uuid.uuid4
        self.fields[FIELD].initial = Seen.of(account).sign

    def clean(self) -> dict[str, Any]:
        """Refuse a form without the signed version that it showed."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        seen = Seen.read(cleaned.get(FIELD, ""), type(self.account))
        if seen is None or not seen.is_about(self.account):
            raise forms.ValidationError(
                _("Nothing was booked, because the form did not include the version of the account.")
            )
        cleaned["version"] = seen.version
        return cleaned

    def build_request(self, operation: str) -> BookingRequest:
        data = self.cleaned_data
        return BookingRequest(
            operation=operation,
            account=self.account,
            amount=data["amount"],
            key=data["idempotency_key"],
            version=data["version"],
            target=data.get("target"),
        )

    def redisplay(self, account: AbstractAccount) -> BookingForm:
        """Return the form with the user's input, and the current version of the account."""
        data: Any = self.data.copy()  # type: ignore[attr-defined]
        data[FIELD] = Seen.of(account).sign()
        return type(self)(data, account=account)


class TransferForm(BookingForm):
    """A `BookingForm` with a target account."""

    target: Any = forms.ModelChoiceField(None, label=_("To account number"), widget=forms.TextInput)
    field_order = ("target", "amount", "locking")

    def __init__(self, *args: object, account: AbstractAccount, **kwargs: object) -> None:
        super().__init__(*args, account=account, **kwargs)
        # Set here, because the class serves every account model.
        self.fields["target"].queryset = type(account)._default_manager.all()  # type: ignore[attr-defined]

    def clean_target(self) -> AbstractAccount:
        target: AbstractAccount = self.cleaned_data["target"]
        if target.pk == self.account.pk:
            raise forms.ValidationError(_("The target must be another account."))
        return target


FORMS: Mapping[str, type[BookingForm]] = MappingProxyType(
    {"deposit": BookingForm, "withdraw": BookingForm, "transfer": TransferForm}
)
"""The form class of each operation."""
