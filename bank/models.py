"""Tables that several people maintain: what edit locks are shown on."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_lockstep.editing import EditLockedModel


class Author(EditLockedModel):
    """Is locked for others while an article that refers to it is edited."""

    name = models.CharField(_("name"), max_length=100)

    class Meta:
        verbose_name = _("author")
        verbose_name_plural = _("authors")

    def __str__(self) -> str:
        return self.name


class Article(EditLockedModel):
    """Is edited by one user at a time, in the admin and, by a trigger, in SQL too."""

    title = models.CharField(_("title"), max_length=100)
    text = models.TextField(_("text"), blank=True)
    author = models.ForeignKey(Author, models.PROTECT, related_name="articles", verbose_name=_("author"))

    class Meta:
        verbose_name = _("article")
        verbose_name_plural = _("articles")

    def __str__(self) -> str:
        return self.title
