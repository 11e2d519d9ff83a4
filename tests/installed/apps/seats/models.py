"""Seats that are booked by whoever comes first."""

from django.db import models

from django_lockstep.locking import VersionedModel, VersionField


class Seat(VersionedModel):
    """One seat of the house."""

    number = models.CharField(max_length=10, primary_key=True)
    version = VersionField(start=1)
    guest = models.CharField(max_length=50, blank=True)

    def __str__(self) -> str:
        return self.number
