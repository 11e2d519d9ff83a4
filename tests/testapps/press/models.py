"""Tables that several people maintain, and those that holders of leases write."""

import uuid

from django.conf import settings
from django.db import models

from django_lockstep.editing import EditLockedModel
from django_lockstep.leases import FencedModel
from django_lockstep.locking import VersionedModel


class Author(EditLockedModel):
    """What articles and reviews refer to."""

    name = models.CharField(max_length=50, default="Ada")
    code = models.IntegerField(null=True, unique=True)

    def __str__(self) -> str:
        return self.name


class Tag(models.Model):
    """A text as key."""

    slug = models.CharField(max_length=20, primary_key=True)


class Article(EditLockedModel, VersionedModel):
    """Refers to its author."""

    title = models.CharField(max_length=50, default="Untitled")
    text = models.TextField(blank=True)
    author = models.ForeignKey(Author, models.CASCADE)
    tags = models.ManyToManyField(Tag, blank=True)

    def __str__(self) -> str:
        return self.title


class LongRead(Article):
    """An article with a row in a table of its own."""

    pages = models.IntegerField(default=10)


class Draft(Article):
    """Another class for the same rows."""

    class Meta:
        proxy = True


class Review(EditLockedModel):
    """Refers to its author as well, and is guarded against SQL."""

    text = models.CharField(max_length=50, blank=True)
    author = models.ForeignKey(Author, models.CASCADE)


class Comment(EditLockedModel):
    """Refers to an article, to an answered comment, and to a user; by a key that the client makes."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    text = models.CharField(max_length=50, blank=True)
    article = models.ForeignKey(Article, models.CASCADE)
    answers = models.ForeignKey("self", models.CASCADE, null=True, blank=True)
    writer = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, null=True, blank=True)


class Country(EditLockedModel):
    """Refers to a city that refers back."""

    capital = models.ForeignKey("City", models.SET_NULL, null=True, related_name="+")


class City(EditLockedModel):
    """Refers to a country that refers back, and to an author by another key than the primary one."""

    country = models.ForeignKey(Country, models.CASCADE, null=True)
    poet = models.ForeignKey(Author, models.SET_NULL, null=True, to_field="code")


class Cell(EditLockedModel):
    """A key of two columns."""

    pk = models.CompositePrimaryKey("row", "column")
    row = models.CharField(max_length=10)
    column = models.IntegerField()
    text = models.CharField(max_length=50, blank=True)


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
