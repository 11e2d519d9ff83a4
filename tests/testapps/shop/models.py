"""Models of somebody who uses the library without our account."""

import uuid
from typing import Any

from concurrency.fields import AutoIncVersionField
from django.db import models
from django.db.models.functions import Upper

from django_lockstep.locking import VersionedModel
from django_lockstep.locking.fields import VersionField


class Seat(VersionedModel):
    """As most models are."""

    row = models.CharField(max_length=10, default="A")
    guest = models.CharField(max_length=50, blank=True)
    price = models.DecimalField(max_digits=6, decimal_places=2, default="10.00")
    wishes = models.JSONField(default=list)


class PlainSeat(models.Model):
    """The same on django-concurrency alone."""

    version = AutoIncVersionField()
    row = models.CharField(max_length=10, default="A")
    guest = models.CharField(max_length=50, blank=True)
    price = models.DecimalField(max_digits=6, decimal_places=2, default="10.00")
    wishes = models.JSONField(default=list)


class StampedSeat(VersionedModel):
    """A seat that knows when it was last saved."""

    guest = models.CharField(max_length=50, blank=True)
    booked_at = models.DateTimeField(null=True)
    touched_at = models.DateTimeField(auto_now=True)


class BoxSeat(Seat):
    """A seat in a table of its own, whose version is in its parent's."""

    champagne = models.BooleanField(default=False)


class CheapSeat(Seat):
    """Another class for the same rows."""

    class Meta:
        proxy = True


class Place(models.Model):
    """Something that has no version."""

    name = models.CharField(max_length=20, blank=True)


class Stage(VersionedModel, Place):
    """A row in two tables, the version in the second."""

    guest = models.CharField(max_length=50, blank=True)


class UuidSeat(VersionedModel):
    """A key that the client makes."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    guest = models.CharField(max_length=50, blank=True)


class OddSeat(VersionedModel):
    """A text as key, and names that need quoting."""

    code = models.CharField(max_length=20, primary_key=True, db_column="The Code")
    version = VersionField(db_column="Row Version", start=1)
    guest = models.CharField(max_length=50, blank=True, db_column="Guest Name")

    class Meta:
        db_table = "Odd Seats of the House"


class PairSeat(VersionedModel):
    """A key of two columns, and a column that the database computes."""

    pk = models.CompositePrimaryKey("hall", "number")
    hall = models.CharField(max_length=10)
    number = models.IntegerField()
    version = VersionField(start=1)
    guest = models.CharField(max_length=50, blank=True)
    shouted: Any = models.GeneratedField(
        expression=Upper("guest"), output_field=models.CharField(max_length=50), db_persist=True
    )


class Ticket(models.Model):
    """A row that refers to a seat, and has neither a version nor a number for a key."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    seat = models.ForeignKey(Seat, on_delete=models.CASCADE, null=True)


class Order(VersionedModel):
    """What is brought to a seat."""

    seat = models.ForeignKey(Seat, on_delete=models.CASCADE)
    dish = models.CharField(max_length=50)
    count = models.PositiveIntegerField(default=1)

    def __str__(self) -> str:
        return self.dish


class Poster(VersionedModel):
    """A file, and related objects without a version."""

    seat = models.ForeignKey(Seat, on_delete=models.SET_NULL, null=True, blank=True)
    picture = models.FileField(upload_to="posters", blank=True)
    caption = models.CharField(max_length=50, blank=True)


class Locker(VersionedModel):
    """A key that is painted on a door, and used again when the locker behind it is replaced."""

    number = models.CharField(max_length=10, primary_key=True)
    version = VersionField(start="clock")
    guest = models.CharField(max_length=50, blank=True)


class Turnstile(VersionedModel):
    """Columns that count and that do not."""

    version = VersionField(uncounted=["passages", "passed_at"])
    guest = models.CharField(max_length=50, blank=True)
    passages = models.IntegerField(default=0)
    passed_at = models.DateTimeField(null=True)


class Numbering(models.Model):
    """The last number of a sequence without gaps."""

    name = models.CharField(max_length=20, primary_key=True)
    last = models.IntegerField(default=0)
