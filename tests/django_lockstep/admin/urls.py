"""Admin sites of somebody who uses the versioned admin, and of somebody who uses django-concurrency's."""

from typing import Any

from concurrency.admin import ConcurrentModelAdmin
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import path

from django_lockstep.admin.versioned import VersionedModelAdmin, VersionedTabularInline
from tests.testapps.shop.models import OddSeat, Order, PlainOrder, PlainSeat, Poster, Seat, UuidSeat

FIELDS = ("row", "guest", "price")


@admin.action(description="Give the seats away")
def give_away(modeladmin: Any, request: HttpRequest, queryset: QuerySet[Any]) -> None:
    for seat in queryset:
        seat.guest = ""
        seat.save()


class OrderInline(VersionedTabularInline):
    model = Order
    extra = 1


class SeatAdmin(VersionedModelAdmin):
    fields = FIELDS
    list_display = ("__str__", "guest", "price", "version")
    list_editable = ("guest", "price")
    inlines = (OrderInline,)
    actions = (give_away,)


class PosterAdmin(VersionedModelAdmin):
    pass


class PlainOrderInline(admin.TabularInline):  # type: ignore[type-arg]
    model = PlainOrder
    extra = 0  # its version makes every empty row look as if something was typed into it


class PlainSeatAdmin(ConcurrentModelAdmin):  # type: ignore[misc]
    fields = (*FIELDS, "version")
    list_display = ("__str__", "guest", "price", "version")
    list_editable = ("guest", "price")
    inlines = (PlainOrderInline,)
    actions = (give_away,)


site = admin.AdminSite(name="admin")
site.register(Seat, SeatAdmin)
site.register([Poster, UuidSeat, OddSeat], PosterAdmin)
site.register(PlainSeat, PlainSeatAdmin)

urlpatterns = [path("admin/", site.urls)]
