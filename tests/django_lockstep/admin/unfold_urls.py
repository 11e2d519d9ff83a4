"""The same admin classes with django-unfold's."""

from django.urls import path
from unfold.admin import ModelAdmin, TabularInline
from unfold.sites import UnfoldAdminSite

from accounts.admin.account import AccountAdmin, EntryAdmin
from accounts.models import Account, Entry
from django_lockstep.admin.versioned import VersionedInlineMixin
from tests.django_lockstep.admin.urls import SeatAdmin
from tests.testapps.shop.models import Order, Seat


class UnfoldOrderInline(VersionedInlineMixin, TabularInline):  # type: ignore[misc]
    model = Order
    extra = 1


class UnfoldSeatAdmin(SeatAdmin, ModelAdmin):  # type: ignore[misc]
    inlines = (UnfoldOrderInline,)


class UnfoldAccountAdmin(AccountAdmin, ModelAdmin):  # type: ignore[misc]
    pass


class UnfoldEntryAdmin(EntryAdmin, ModelAdmin):  # type: ignore[misc]
    pass


site = UnfoldAdminSite(name="admin")
site.register(Seat, UnfoldSeatAdmin)
site.register(Account, UnfoldAccountAdmin)
site.register(Entry, UnfoldEntryAdmin)

urlpatterns = [path("admin/", site.urls)]
