"""Forms for deposits, withdrawals and transfers: each is applied once, with the chosen locking."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.db import connections, router, transaction
from django.utils import formats
from django.utils.translation import gettext_lazy as _

from accounts.models import AbstractAccount
from django_lockstep.admin.tokens import FIELD, Seen
from django_lockstep.errors import StaleVersionError

OPTIMISTIC, PESSIMISTIC = "optimistic", "pessimistic"

WAIT = 5
"""Seconds for which a page waits for an account that another session has locked."""

# Django's own field also reads "1E+5", "1_000" and the digits of other scripts.
_PLAIN = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)")


class MoneyField(forms.DecimalField):
    """A decimal number written with digits and a decimal point; other notations are invalid."""

    def to_python(self, value: object) -> Any:
        text = str(formats.sanitize_separators(value) if self.localize else value).strip()
        if value not in self.empty_values and not _PLAIN.fullmatch(text):
            raise ValidationError(self.error_messages["invalid"], code="invalid")
        return super().to_python(value)


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

    def book(self, operation: str) -> AbstractAccount:
        """Perform the operation, unless its key was used before; return the account after it.

        Pessimistic locking waits for the row, at most `WAIT` seconds. Optimistic locking raises `StaleVersionError` if
        the account has another version than the form showed; a transfer compares the source's version under the locks
        of both rows. Raises the errors of `AbstractAccount.withdraw` and `AbstractAccount.transfer`.
        """
        model, amount, key = type(self.account), self.cleaned_data["amount"], self.cleaned_data["idempotency_key"]
        expected = self.cleaned_data["version"] if self.cleaned_data["locking"] == OPTIMISTIC else None
        using = router.db_for_write(model)
        # Other databases than PostgreSQL do not support a lock timeout.
        timeout = WAIT if connections[using].vendor == "postgresql" else None
        account: AbstractAccount
        if operation == "transfer":
            target = self.cleaned_data["target"].pk
            # The version is compared after the transfer, when both rows are locked; the exception rolls it back.
            with transaction.atomic(using=using):
                account, _target = model.transfer(self.account.pk, target, amount, idempotency_key=key, timeout=timeout)
                if expected is not None and account.version != expected + 1:
                    raise StaleVersionError(model=model, pk=account.pk, expected=expected, target=account)
        elif expected is None:
            account = getattr(model, operation)(self.account.pk, amount, idempotency_key=key, timeout=timeout)
        else:
            account = model._default_manager.get(pk=self.account.pk)
            # Not the version just read: the user decided on the one that the form showed.
            account.version = expected
            if not getattr(account, f"try_{operation}")(amount, idempotency_key=key):
                raise StaleVersionError(model=model, pk=account.pk, expected=expected, target=account)
        return account

    def entries(self) -> list[Any]:
        """Return the entries that were written, the account's own first."""
        entries: Any = type(self.account).entry_model()._default_manager
        own = entries.get(account_id=self.account.pk, idempotency_key=self.cleaned_data["idempotency_key"])
        return [own, *entries.filter(transfer=own.transfer, transfer__isnull=False).exclude(pk=own.pk)]

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
