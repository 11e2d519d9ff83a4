"""The project's own accounts, which have nothing to do with the showcase."""

from django.db import models

from django_lockstep.locking import VersionedModel


class Account(VersionedModel):
    customer = models.CharField(max_length=50)
    points = models.IntegerField(default=0)

    def __str__(self) -> str:
        return self.customer
