"""Amounts of money in forms."""

from __future__ import annotations

import re
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils import formats

__all__ = ["MoneyField"]

# Django's own field also reads "1E+5", "1_000" and the digits of other scripts.
_PLAIN = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)")


class MoneyField(forms.DecimalField):
    """A decimal number written with digits and a decimal point; other notations are invalid."""

    def to_python(self, value: object) -> Any:
        text = str(formats.sanitize_separators(value) if self.localize else value).strip()
        if value not in self.empty_values and not _PLAIN.fullmatch(text):
            raise ValidationError(self.error_messages["invalid"], code="invalid")
        return super().to_python(value)
