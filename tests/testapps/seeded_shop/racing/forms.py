"""The shop's forms."""

from typing import Any

from django import forms

from .models import Booking, Show


class BookingForm(forms.Form):
    show = forms.ModelChoiceField(Show.objects.all())
    seat = forms.CharField(max_length=5)
    guest = forms.CharField(max_length=50)

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        if Booking.objects.filter(show=data.get("show"), seat=data.get("seat")).exists():
            raise forms.ValidationError("This seat is taken.")
        return data
