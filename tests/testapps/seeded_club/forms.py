"""The club's forms."""

from django import forms

from .models import Member


class MemberForm(forms.ModelForm):  # type: ignore[type-arg]
    class Meta:
        model = Member
        fields = ("email",)
