"""``lockstep.W030``: an admin that leaves the version out of its form overwrites what others have saved meanwhile."""

from typing import Any
from weakref import WeakSet

import pytest
from django.contrib import admin
from django.contrib.admin import sites
from django.core import checks
from django.forms import ModelForm
from django.http import HttpRequest
from django.test import RequestFactory

from django_lockstep.admin import VersionedModelAdmin, VersionedTabularInline
from django_lockstep.locking import StaleVersionError
from tests.support.factories import UserFactory
from tests.testapps.shop.models import Seat, Ticket


class SeatForm(ModelForm):  # type: ignore[type-arg]
    class Meta:
        model = Seat
        fields = ("guest",)


def register(monkeypatch: pytest.MonkeyPatch, base: Any = admin.ModelAdmin, /, **options: Any) -> admin.AdminSite:
    """Return a site, the only one, with an admin of seats; it adds itself to what other tests do not see."""
    monkeypatch.setattr(sites, "all_sites", WeakSet())
    site = admin.AdminSite()
    site.register(Seat, type("SeatAdmin", (base,), options))
    return site


def reported() -> list[Any]:
    return [message.obj for message in checks.run_checks(tags=["admin"]) if message.id == "lockstep.W030"]


def inline(base: Any, **options: Any) -> Any:
    return type("SeatInline", (base,), {"model": Seat, "fk_name": None, **options})


def never(self: Any, request: HttpRequest, obj: Any = None) -> bool:
    return False


@pytest.mark.parametrize(
    "options",
    [
        {"fields": ["guest"]},
        {"fields": [("guest", "price")]},
        {"fieldsets": [(None, {"fields": ["guest"]})]},
        {"exclude": ["version"]},
        {"readonly_fields": ["version"]},
        {"form": SeatForm},
    ],
)
def test_a_form_without_the_version(monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]) -> None:
    site = register(monkeypatch, **options)
    assert reported() == [type(site._registry[Seat])]
    register(monkeypatch, VersionedModelAdmin, **{**options, "form": ModelForm})
    assert reported() == []


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"fields": ["guest", "version"]},
        {"fields": ["guest"], "readonly_fields": ["guest"]},
        {"fields": ["guest"], "has_change_permission": never},
    ],
)
def test_a_form_with_the_version_or_no_way_to_write(monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]) -> None:
    register(monkeypatch, **options)
    assert reported() == []


def test_rows_of_an_inline_and_models_without_a_version(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, compared = (inline(base, fields=["guest"]) for base in (admin.TabularInline, VersionedTabularInline))
    site = register(monkeypatch)
    site.register(Ticket, type("TicketAdmin", (admin.ModelAdmin,), {"fields": ["seat"], "inlines": [plain, compared]}))
    assert reported() == [plain]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("options", "guest"), [({"fields": ["guest"]}, "mine"), ({"fields": ["guest", "version"]}, "theirs")]
)
def test_what_it_warns_of(monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], guest: str) -> None:
    model_admin: Any = register(monkeypatch, **options)._registry[Seat]
    seat = Seat.objects.create(guest="first")
    request = RequestFactory().post("/", {})
    request.user = UserFactory.create(is_superuser=True, is_staff=True)
    form_class = model_admin.get_form(request, seat, change=True)
    shown = form_class(instance=seat)
    data = {**{name: shown[name].value() for name in shown.fields}, "guest": "mine"}
    Seat.objects.filter(pk=seat.pk).update(guest="theirs")

    form = form_class({key: "" if value is None else value for key, value in data.items()}, instance=Seat.objects.get())
    assert form.is_valid(), form.errors
    try:
        model_admin.save_model(request, form.save(commit=False), form, change=True)
    except StaleVersionError:
        assert guest == "theirs"
    assert Seat.objects.get().guest == guest
