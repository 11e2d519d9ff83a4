"""System checks of ledgers."""

from __future__ import annotations

from django.core import checks
from django.core.checks import CheckMessage, Error
from django.core.exceptions import FieldDoesNotExist
from django.db import models

from accounts.operations import AppendOnly
from django_lockstep.locking.checks import is_missing_trigger


def account_checks(model: type[models.Model]) -> list[CheckMessage]:
    """Return an error where no entry model refers to the account model."""
    try:
        model._meta.get_field("entries")
    except FieldDoesNotExist:
        return [
            Error(
                f"{model._meta.label} has no entries: no change of its balance can be written.",
                hint='Give its AbstractEntry subclass account = ForeignKey(..., related_name="entries").',
                obj=model,
                id="accounts.E001",
            )
        ]
    return []


def check_append_only(model: type[models.Model], alias: str) -> list[CheckMessage]:
    """Warn where SQL can change the entries of a table, because it has no append-only trigger."""
    if not is_missing_trigger(model, alias, AppendOnly.trigger):
        return []
    return [
        checks.Warning(
            f"SQL can change and delete rows of {model._meta.label} on database {alias!r}.",
            hint=f'Add a migration with accounts.operations.AppendOnly("{model._meta.object_name}").',
            obj=model,
            id="accounts.W007",
        )
    ]
