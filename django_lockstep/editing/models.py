"""The app's two tables: check-outs, and the locks that each of them holds."""

from __future__ import annotations

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

LONGEST_KEY = 500
"""Maximum length of a record's key: it is indexed with the table's name, and MySQL's indexes hold 3072 bytes."""


LONGEST_NOTE = 200


class Status(models.TextChoices):
    """The status of a table or a record."""

    NORMAL = "normal", _("normal")
    EDITING = "editing", _("editing")
    LOCKED = "locked", _("locked")


class CheckOut(models.Model):
    """One user's check-out of one table or record, from one tab. Rows are kept after their end, as a log."""

    class End(models.TextChoices):
        """How a check-out ended."""

        CHECKED_IN = "checked in", _("checked in")
        EXPIRED = "expired", _("expired")
        TAKEN_OVER = "taken over", _("taken over")

    editor = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+", verbose_name=_("editor"))
    model = models.CharField(_("table"), max_length=200)
    object_pk = models.CharField(
        _("record"), max_length=LONGEST_KEY, blank=True, help_text=_("Empty: the whole table.")
    )
    digest = models.CharField(max_length=64, unique=True, editable=False)
    pass_digest = models.CharField(max_length=64, editable=False)
    require_token = models.BooleanField(_("requires its token"), default=False)
    note = models.CharField(_("note"), max_length=LONGEST_NOTE, blank=True)
    since = models.DateTimeField(_("since"))
    expires_at = models.DateTimeField(_("expires at"))
    ended_at = models.DateTimeField(_("ended at"), null=True, blank=True)
    ended_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="+", verbose_name=_("ended by")
    )
    ended_how = models.CharField(_("ended how"), max_length=10, choices=End, blank=True)

    class Meta:
        verbose_name = _("check-out")
        verbose_name_plural = _("check-outs")
        indexes: ClassVar = [models.Index(fields=["model", "object_pk"], name="lockstep_editing_checkout_tgt")]

    def __str__(self) -> str:
        return f"{self.target_name}, {self.editor}"

    @property
    def target_name(self) -> str:
        """The checked-out table or record, such as ``shop.seat`` or ``shop.seat:5``."""
        return f"{self.model}:{self.object_pk}" if self.object_pk else self.model


class EditLock(models.Model):
    """A table or a record that a check-out holds. Without a row the status is normal.

    ``editing``: it is the target of the check-out. ``locked``: the target refers to it and needs it unchanged; several
    check-outs may lock it if each asked for ``shared`` references. ``normal``: a user views it and locks nothing
    (presence). A lock is effective until its check-out expires, by the database's clock.
    """

    check_out = models.ForeignKey(CheckOut, models.CASCADE, related_name="locks", verbose_name=_("check-out"))
    model = models.CharField(_("table"), max_length=200)
    object_pk = models.CharField(_("record"), max_length=LONGEST_KEY, blank=True)
    status = models.CharField(_("status"), max_length=7, choices=Status)
    shared = models.BooleanField(_("shared"), default=False)

    class Meta:
        verbose_name = _("edit lock")
        verbose_name_plural = _("edit locks")
        permissions: ClassVar = [("take_over_editlock", _("Can take over other users' check-outs"))]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["model", "object_pk"],
                # The last line of defence: even a writer without the advisory locks cannot make two holders of one
                # record. Table against record, and shared against exclusive, only the INSERT of the locks compares.
                condition=models.Q(shared=False) & ~models.Q(status="normal"),
                name="lockstep_editing_one_holder",
            ),
            models.CheckConstraint(
                condition=models.Q(shared=False) | models.Q(status="locked"), name="lockstep_editing_shared_is_locked"
            ),
        ]
        # For every check of a write; the partial index of the constraint does not have presences and shared locks.
        indexes: ClassVar = [models.Index(fields=["model", "object_pk"], name="lockstep_editing_target")]

    def __str__(self) -> str:
        return f"{self.model}:{self.object_pk}" if self.object_pk else self.model

    @property
    def locked_by(self) -> str:
        """The checked-out table or record that causes this lock, such as ``shop.ticket``."""
        return self.check_out.target_name
