"""System checks of a versioned model's declaration: its version's options, its key, its references."""

from __future__ import annotations

from typing import Any

from django.core import checks
from django.core.checks import CheckMessage
from django.db import connections, models, router
from django.db.models.fields import AutoFieldMixin

from django_lockstep.locking.fields import is_key, version_field

__all__ = ["check_declaration"]

_CHANGES_NO_ROW = {"CASCADE", "PROTECT", "RESTRICT", "DO_NOTHING", "DB_CASCADE"}
"""Values of ``on_delete`` that change no referring row."""


def check_declaration(model: type[models.Model]) -> list[CheckMessage]:
    """Check the declaration of a versioned model."""
    if model._meta.proxy:
        return []
    references = _changed_by_deletions(model)
    return [*_check_version(model), *references] if version_field(model).model is model else references


def _check_version(model: type[models.Model]) -> list[CheckMessage]:
    version = version_field(model)
    columns = {
        field.name for field in model._meta.local_concrete_fields if field != version and not is_key(model, field)
    }
    messages: list[CheckMessage] = [
        checks.Error(
            f"The version of {model._meta.label} names {name!r} as uncounted, which is not another column of its "
            "table.",
            hint="Name fields of the model that has the version field, other than its key.",
            obj=model,
            id="lockstep.E040",
        )
        for name in version.uncounted
        if name not in columns
    ]
    if not version.start and not _is_generated(model._meta.pk):
        messages.append(
            checks.Warning(
                f"Keys of {model._meta.label} are assigned by hand: where a row is deleted and another gets its key, a "
                "stale save of the deleted row may overwrite the new one.",
                hint='Declare version = VersionField(start="clock"), or start=1 if keys are not used again.',
                obj=model,
                id="lockstep.W040",
            )
        )
    return messages


def _is_generated(key: models.Field[Any, Any]) -> bool:
    """Whether keys come from a sequence or a default, so that none is used twice by itself."""
    if key.remote_field and getattr(key.remote_field, "parent_link", False):
        return _is_generated(key.remote_field.model._meta.pk)
    return isinstance(key, AutoFieldMixin) or key.has_default() or key.has_db_default()


def _changed_by_deletions(model: type[models.Model]) -> list[CheckMessage]:
    """Warn of foreign keys that change when their target is deleted, on databases that cannot have our triggers."""
    used = [alias for alias in connections if connections[alias].vendor not in {"postgresql", "unknown"}]
    actions = {field: getattr(field.remote_field, "on_delete", None) for field in model._meta.local_fields}
    return [
        checks.Warning(
            f"On database {alias!r}, deleting an object that {model._meta.label}.{field.name} refers to changes rows "
            f"of {model._meta.label} without raising their versions.",
            hint="Use PostgreSQL with AddVersionGuard, on_delete=CASCADE, PROTECT or RESTRICT, or update the rows "
            "first.",
            obj=field,
            id="lockstep.W041",
        )
        for field, action in actions.items()
        if getattr(action, "__name__", action) not in {None, *_CHANGES_NO_ROW}
        for alias in used
        if router.allow_migrate_model(alias, model)
    ]
