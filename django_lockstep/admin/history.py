"""Recorded changes of an object: who changed it, and when."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.apps import apps
from django.contrib.admin.models import LogEntry
from django.contrib.admin.options import get_content_type_for_model
from django.db import models

MOST = 5
"""How many of the newest changes a page shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedChange:
    """One recorded change."""

    when: datetime
    """When, by the clock of the server that recorded it."""
    who: str
    """The user's name; empty if unknown."""
    what: str
    """The record's description."""


def changes_since(model: type[models.Model], pk: object, moment: datetime) -> list[RecordedChange]:
    """Return the changes of the object recorded since ``moment``, newest first.

    Reads django-simple-history where the model uses it, otherwise the admin's log, which only has changes made in the
    admin.
    """
    # The attribute that django-simple-history sets; no import, because it is optional.
    manager = getattr(model._meta, "simple_history_manager_attribute", None)
    if manager:
        return _from_simple_history(getattr(model, manager), pk, moment)
    return _from_log(model, pk, moment) if apps.is_installed("django.contrib.admin") else []


def _from_simple_history(history: Any, pk: object, moment: datetime) -> list[RecordedChange]:
    model_pk = history.model.instance_type._meta.pk.attname
    records = history.filter(**{model_pk: pk}, history_date__gte=moment).order_by("-history_date")[:MOST]
    return [
        RecordedChange(
            when=record.history_date,
            who=str(record.history_user or ""),
            what=str(record.history_change_reason or record.get_history_type_display()),
        )
        for record in records
    ]


def _from_log(model: type[models.Model], pk: object, moment: datetime) -> list[RecordedChange]:
    kind = get_content_type_for_model(model)
    entries = LogEntry.objects.filter(content_type=kind, object_id=str(pk), action_time__gte=moment)
    newest = entries.select_related("user").order_by("-action_time", "-pk")[:MOST]
    return [
        RecordedChange(
            when=entry.action_time,
            who=str(entry.user),
            what=entry.get_change_message() or str(entry.get_action_flag_display()),
        )
        for entry in newest
    ]
