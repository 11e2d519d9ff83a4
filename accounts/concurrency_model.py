"""Saves an account with django-concurrency, for the strategy of that name.

That package checks versions in its own version field. Each account model therefore gets a second, unmanaged model on
the same table with that field, as a project without this library would have written it.
"""

from __future__ import annotations

import functools
from typing import Any

from django.apps.registry import Apps
from django.core.exceptions import ImproperlyConfigured
from django.db import models

from django_lockstep.locking.fields import version_field
from django_lockstep.locking.memory import apply_written
from django_lockstep.locking.writes import auto_now_fields


def save_with_django_concurrency(account: models.Model, *, using: str) -> None:
    """Save the account's balance with that package's ``save()``; the instance then has the values of its row.

    Raises ``RecordModifiedError`` for a stale version, ``ImproperlyConfigured`` where the package is not installed.
    """
    model = concurrency_model(type(account))
    attnames = [field.attname for field in model._meta.concrete_fields]
    # As if it had been read by that model, with the version that the account was read with.
    row = model.from_db(using, attnames, [getattr(account, attname) for attname in attnames])
    row.save(using=using)
    apply_written(account, {attname: getattr(row, attname) for attname in attnames}, using=using)


@functools.lru_cache(maxsize=64)
def concurrency_model(model: type[models.Model]) -> type[models.Model]:
    """Return the unmanaged model for the table that holds the account's balance and version.

    It has only the columns that a change of the balance reads or writes.
    """
    try:
        from concurrency.fields import AutoIncVersionField
    except ImportError as error:
        raise ImproperlyConfigured(
            "The strategy 'django_concurrency' requires the package django-concurrency, which is not installed."
        ) from error
    version = version_field(model)
    owner = version.model
    copied = (
        owner._meta.pk,
        *map(owner._meta.get_field, ("balance", "overdraft_limit", "entry_count")),
        *auto_now_fields(owner),
    )
    # Its own registry, so that the project's migrations, commands and relations do not see a second model.
    meta = {"apps": Apps(), "app_label": owner._meta.app_label, "db_table": owner._meta.db_table, "managed": False}
    members: dict[str, Any] = {field.name: field.clone() for field in copied if isinstance(field, models.Field)}
    members[version.name] = AutoIncVersionField(db_column=version.column)
    members |= {"__module__": __name__, "Meta": type("Meta", (), meta)}
    return type(f"Concurrency{owner.__name__}", (models.Model,), members)
