"""Accounts in the admin."""

from django.contrib import admin

from django_lockstep.admin.versioned import VersionedModelAdmin

from .models import Account

admin.site.register(Account, VersionedModelAdmin)
