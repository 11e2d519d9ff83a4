"""Seats in the admin."""

from django.contrib import admin

from django_lockstep.admin.versioned import VersionedModelAdmin

from .models import Seat

admin.site.register(Seat, VersionedModelAdmin)
