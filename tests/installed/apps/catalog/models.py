"""Tables that several people maintain."""

from django.db import models

from django_lockstep.editing import EditLockedModel


class Publisher(EditLockedModel):
    name = models.CharField(max_length=50, blank=True)


class Book(EditLockedModel):
    title = models.CharField(max_length=50, blank=True)
    publisher = models.ForeignKey(Publisher, models.CASCADE)
