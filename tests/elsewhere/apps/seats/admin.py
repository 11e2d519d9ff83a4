"""Seats in the admin."""

from django.contrib import admin

from .models import Seat

admin.site.register(Seat)
