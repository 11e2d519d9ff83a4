"""What holders of leases write in the tests."""

from django.db import models

from django_lockstep.leases import FencedModel


class Report(FencedModel):
    """A row that remembers who wrote it."""

    text = models.CharField(max_length=50, blank=True)


class Note(models.Model):
    """A row that does not."""

    text = models.CharField(max_length=50, blank=True)
    token = models.BigIntegerField(default=0)


class SignedReport(Report):
    """A row in two tables, with the token in the parent's."""

    signer = models.CharField(max_length=50, blank=True)


class SignedNote(FencedModel, Note):
    """A row in two tables, with the token in its own."""

    signer = models.CharField(max_length=50, blank=True)
