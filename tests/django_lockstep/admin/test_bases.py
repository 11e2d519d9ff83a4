"""Together with other admin classes, whose forms stay what they are."""

from typing import Any

import pytest
from django import forms
from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path

from django_lockstep.admin.versioned import VersionedModelAdmin
from tests.django_lockstep.admin.browsing import choose, conflict_of, fill, url
from tests.testapps.shop.models import Seat, UuidSeat

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]


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

ADD = "/admin/shop/seat/add/"


def test_djangos_user_admin_adds_with_its_own_form(admin_client: Client) -> None:
    page = admin_client.get(ADD)
    assert {"guest", "again"} <= fill(page).keys()
    assert admin_client.post(ADD, fill(page, guest="Ada")).status_code == 200
    assert admin_client.post(ADD, fill(page, guest="Ada", again="Ada")).status_code == 302
    assert Seat.objects.get().guest == "Ada"


def test_djangos_user_admin_compares_what_is_changed(admin_client: Client) -> None:
    seat = Seat.objects.create(guest="Ada")
    conflict = conflict_of(admin_client, seat, {"guest": "Eve"}, guest="Bob")
    assert conflict.status_code == 409
    assert admin_client.post(url(seat), choose(conflict, "mine", "guest")).status_code == 302
    assert Seat.objects.get().guest == "Bob"


def test_a_field_that_another_base_closes_stays_closed(admin_client: Client) -> None:
    seat = UuidSeat.objects.create(guest="Ada")
    page = admin_client.get(url(seat))
    assert "guest" not in fill(page)
    assert admin_client.post(url(seat), fill(page, guest="Bob")).status_code == 302
    assert UuidSeat.objects.get().guest == "Ada"
