"""Whether the compiled statements may replace the methods, and the reasons why not.

They do exactly what the methods of this app do. Where a project changes that, by another database, an overridden
method, its own manager or a signal receiver, the method runs.
"""

from __future__ import annotations

from typing import Any

from django.db import connections, models
from django.db.models.manager import BaseManager
from django.db.models.signals import post_init, post_save, pre_init, pre_save

from django_lockstep.locking.fields import parents_of

_ACCOUNT_STEPS = ("balance_after", "record", "save", "save_base", "from_db")
_ENTRY_STEPS = ("save", "save_base", "from_db")
_SIGNALS = (pre_init, post_init, pre_save, post_save)


def obstacles(model: type[models.Model], using: str) -> list[str]:
    """Return the reasons, a sentence each, why the model's accounts need the plain methods on this database.

    Signal receivers, which can change while the process runs, are asked for by `has_receivers`.
    """
    connection: Any = connections[using]
    if connection.vendor != "postgresql" or connection.Database.__name__ != "psycopg":
        return [f"Database {using!r} is not PostgreSQL with psycopg 3."]
    entry: Any = model._meta.get_field("entries").related_model
    both = (model, entry)
    return [
        *(f"{table._meta.label} has its columns in several tables." for table in both if parents_of(table)),
        *(f"{table._meta.label} has its own manager." for table in both if not _has_plain_managers(table)),
        *(f"{model._meta.label} overrides {step}()." for step in _ACCOUNT_STEPS if not _is_unchanged(model, step)),
        *(f"{entry._meta.label} overrides {step}()." for step in _ENTRY_STEPS if not _is_unchanged(entry, step)),
        # RETURNING would return the bare column, without its expression.
        *(
            f"{field} is selected by an expression."
            for field in model._meta.concrete_fields
            if type(field).select_format is not models.Field.select_format
        ),
    ]


def has_receivers(account: type[models.Model], entry: type[models.Model]) -> bool:
    """Whether a signal that the methods would send, by ``save()`` and for a new entry, has receivers."""
    # A loop instead of any(): this runs for every change, and usually no signal has a receiver.
    for signal, model in ((pre_save, account), (post_save, account), *((signal, entry) for signal in _SIGNALS)):
        if signal.receivers and signal.has_listeners(model):
            return True
    return False


def _is_unchanged(model: type[models.Model], method: str) -> bool:
    # By the module that defines it, not by comparing with one base class: several of ours define the method.
    owner = next(base for base in model.__mro__ if method in vars(base))
    return _is_ours(owner.__module__)


def _has_plain_managers(model: type[models.Model]) -> bool:
    """Whether the managers show all rows of the table."""
    managers: tuple[Any, ...] = (model._base_manager, model._default_manager)
    return all(
        _is_ours(manager._queryset_class.__module__) and type(manager).get_queryset is BaseManager.get_queryset
        for manager in managers
    )


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] in ("accounts", "django", "django_lockstep")
