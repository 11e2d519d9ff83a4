"""The project's accounts in the admin."""

from django.apps import apps
from django.conf import settings
from django.contrib import admin

from accounts.admin.base import AnyAccountAdmin, LedgerInline

account_model = apps.get_model(settings.TELLER_MODEL)  # type: ignore[misc]
entry_model = account_model._meta.get_field("entries").related_model


class EntryInline(LedgerInline):
    model = entry_model


class AccountAdmin(AnyAccountAdmin):
    inlines = (EntryInline,)


for model, admin_class in ((account_model, AccountAdmin), (entry_model, admin.ModelAdmin)):
    if not admin.site.is_registered(model):
        admin.site.register(model, admin_class)
