"""Models of somebody who uses the library without our account."""

import uuid

from django.db import models

from accounts.locking import VersionedModel


class Seat(VersionedModel):
    row = models.CharField(max_length=10, default="A")
    guest = models.CharField(max_length=50, blank=True)
    price = models.DecimalField(max_digits=6, decimal_places=2, default="10.00")
    booked_at = models.DateTimeField(null=True)
    touched_at = models.DateTimeField(auto_now=True)


class BoxSeat(Seat):
    """A seat in a table of its own, whose version is in its parent's."""

    champagne = models.BooleanField(default=False)


class Ticket(models.Model):
    """A row that refers to a seat, and has neither a version nor a number for a key."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    seat = models.ForeignKey(Seat, on_delete=models.CASCADE, null=True)
