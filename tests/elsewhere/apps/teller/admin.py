"""The project's accounts in the admin."""

from django.apps import apps
from django.conf import settings
from django.contrib import admin

account_model = apps.get_model(settings.TELLER_MODEL)  # type: ignore[misc]

for model in (account_model, account_model._meta.get_field("entries").related_model):
    if not admin.site.is_registered(model):
        admin.site.register(model)
