"""What jobs write: rows that remember the highest token that wrote them."""

from django.db import models

from django_lockstep.leases import FencedModel


class Result(FencedModel):
    text = models.CharField(max_length=50)
