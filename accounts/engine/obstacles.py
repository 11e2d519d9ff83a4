"""When the compiled statements may stand in for the methods, and why not otherwise.

They do what the methods do and nothing else: where a project changed what a step means, by another database, an
overridden method, a manager of its own or a signal's receiver, the method runs.
"""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models.manager import BaseManager
from django.db.models.signals import ModelSignal, post_init, post_save, pre_init, pre_save

from django_lockstep.locking.compiled import is_psycopg
from django_lockstep.locking.fields import parents_of

__all__ = ["customisations", "has_listeners", "obstacles", "saves_are_heard"]

_ACCOUNT_STEPS = ("balance_after", "record", "save", "save_base", "from_db")
_ENTRY_STEPS = ("save", "save_base", "from_db")
_SIGNALS = (pre_init, post_init, pre_save, post_save)


def obstacles(model: type[models.Model], using: str) -> list[str]:
    """Return, a sentence each, why the model's accounts need the plain methods on this database; empty if they do not.

    What can change while the process runs is left to `has_listeners`.
    """
    if not is_psycopg(using):
        return [f"Database {using!r} is not PostgreSQL with psycopg 3."]
    return [
        *customisations(model),
        # RETURNING would give such a column as it is.
        *(f"{field} is selected by an expression." for field in model._meta.concrete_fields if _is_computed(field)),
    ]


def customisations(model: type[models.Model]) -> list[str]:
    """Return, a sentence each, what the model and its entries do otherwise than the abstract ones."""
    entry: Any = model._meta.get_field("entries").related_model
    return [
        *(f"{each._meta.label} is in several tables." for each in (model, entry) if parents_of(each)),
        *(f"{each._meta.label} has a manager of its own." for each in (model, entry) if not _has_plain_managers(each)),
        *(f"{model._meta.label} overrides {step}()." for step in _ACCOUNT_STEPS if not _is_ours(model, step)),
        *(f"{entry._meta.label} overrides {step}()." for step in _ENTRY_STEPS if not _is_ours(entry, step)),
    ]


def has_listeners(entry: type[models.Model]) -> bool:
    """Whether somebody listens to what the methods would tell of a new entry."""
    return _heard(entry, _SIGNALS)


def saves_are_heard(account: type[models.Model]) -> bool:
    """Whether somebody listens to the ``save()`` of an account with which the methods write its balance."""
    return _heard(account, (pre_save, post_save))


def _heard(model: type[models.Model], signals: tuple[ModelSignal, ...]) -> bool:
    # A loop, because this is asked for every change, and mostly no signal has a receiver.
    for signal in signals:  # noqa: SIM110
        if signal.receivers and signal.has_listeners(model):
            return True
    return False


def _is_computed(field: Any) -> bool:
    return type(field).select_format is not models.Field.select_format


def _is_ours(model: type[models.Model], method: str) -> bool:
    owner = next(each for each in model.__mro__ if method in vars(each))
    return _is_known(owner.__module__)


def _has_plain_managers(model: type[models.Model]) -> bool:
    """Whether the rows that the managers show are those of the table."""
    managers: tuple[Any, ...] = (model._base_manager, model._default_manager)
    return all(
        _is_known(manager._queryset_class.__module__) and type(manager).get_queryset is BaseManager.get_queryset
        for manager in managers
    )


def _is_known(module: str) -> bool:
    return module.partition(".")[0] in ("accounts", "django", "django_lockstep")
