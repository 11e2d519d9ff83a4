"""The project's own accounts, which have nothing to do with the showcase, and models of each room that is installed."""

from django.apps import apps
from django.db import models

from django_lockstep.locking import VersionedModel, VersionField


class Account(VersionedModel):
    customer = models.CharField(max_length=50)
    points = models.IntegerField(default=0)

    def __str__(self) -> str:
        return self.customer


class Seat(VersionedModel):
    """One seat of the house, booked by whoever comes first."""

    number = models.CharField(max_length=10, primary_key=True)
    version = VersionField(start=1)
    guest = models.CharField(max_length=50, blank=True)

    def __str__(self) -> str:
        return self.number


if apps.is_installed("django_lockstep.editing"):
    from django_lockstep.editing import EditLockedModel

    class Publisher(EditLockedModel):
        name = models.CharField(max_length=50, blank=True)

    class Book(EditLockedModel):
        title = models.CharField(max_length=50, blank=True)
        publisher = models.ForeignKey(Publisher, models.CASCADE)


if apps.is_installed("django_lockstep.leases"):
    from django_lockstep.leases import FencedModel

    class Result(FencedModel):
        """What a job writes; the row remembers the highest token that wrote it."""

        text = models.CharField(max_length=50)
