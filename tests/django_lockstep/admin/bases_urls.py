"""Admin classes of somebody whose other bases have forms of their own."""

from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.http import HttpRequest, HttpResponse
from django.urls import path

from django_lockstep.admin.versioned import VersionedModelAdmin
from tests.testapps.shop.models import Seat, UuidSeat


class RepeatForm(forms.ModelForm):  # type: ignore[type-arg]
    again = forms.CharField()

    class Meta:
        model = Seat
        fields = ("guest",)


class GuestAdmin(VersionedModelAdmin, UserAdmin):  # type: ignore[type-arg]
    """What is Django's for users, for seats."""

    form = forms.ModelForm
    add_form = RepeatForm
    fieldsets = ((None, {"fields": ("guest", "price")}),)
    add_fieldsets = ((None, {"fields": ("guest", "again")}),)
    list_display = ("guest",)
    list_filter = search_fields = ordering = filter_horizontal = ()

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        response: HttpResponse = self.changeform_view(request, None, form_url, extra_context)
        return response


class ClosingAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    def get_form(self, request: HttpRequest, obj: Any = None, **kwargs: Any) -> Any:  # type: ignore[override]
        form = super().get_form(request, obj, **kwargs)
        form.base_fields["guest"].disabled = True
        return form


class ClosedAdmin(VersionedModelAdmin, ClosingAdmin):
    fields = ("guest",)


site = admin.AdminSite(name="admin")
site.register(Seat, GuestAdmin)
site.register(UuidSeat, ClosedAdmin)

urlpatterns = [path("admin/", site.urls)]
