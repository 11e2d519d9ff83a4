"""An admin site of somebody who uses the versioned admin."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import path

from django_lockstep.admin.versioned import VersionedModelAdmin, VersionedTabularInline
from tests.testapps.shop.models import OddSeat, Order, Poster, Seat, UuidSeat


@admin.action(description="Give the seats away")
def give_away(modeladmin: Any, request: HttpRequest, queryset: QuerySet[Any]) -> None:
    for seat in queryset:
        seat.guest = ""
        seat.save()


class OrderInline(VersionedTabularInline):
    model = Order
    extra = 1


class SeatAdmin(VersionedModelAdmin):
    fields = ("row", "guest", "price")
    list_display = ("__str__", "guest", "price", "version")
    list_editable = ("guest", "price")
    inlines = (OrderInline,)
    actions = (give_away,)


class PosterAdmin(VersionedModelAdmin):
    pass


site = admin.AdminSite(name="admin")
site.register(Seat, SeatAdmin)
site.register([Poster, UuidSeat, OddSeat], PosterAdmin)

urlpatterns = [path("admin/", site.urls)]
