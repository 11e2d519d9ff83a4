"""System checks: guarantees that a project's models and databases do not give.

Static checks look at classes and settings only. Those that ask a database run where Django asks for it, with
``manage.py check --database default`` and with ``migrate``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.apps import apps
from django.core import checks
from django.core.checks import CheckMessage, Tags, register
from django.db import connections, models, router
from django.db.models.fields import AutoFieldMixin
from django.urls import get_resolver
from django.urls.resolvers import URLPattern, URLResolver

from django_lockstep.locking.fields import is_key, version_field
from django_lockstep.locking.querysets import VersionedQuerySet
from django_lockstep.locking.retry import policy_of
from django_lockstep.locking.triggers import AddVersionGuard, outdated_triggers


class ChecksTable(models.Model):
    """A model that reports what its table lacks on a database; see `check_tables`.

    A model, because migrations would list a plain class among the bases of every derived model.
    """

    class Meta:
        abstract = True

    @classmethod
    def check_table(cls, alias: str) -> list[CheckMessage]:
        """Return what the table on this database lacks."""
        raise NotImplementedError


@register(Tags.models)
def check_databases(app_configs: object, **kwargs: object) -> list[CheckMessage]:
    """Warn of databases that ignore row locks or have no version guards."""
    messages: list[CheckMessage] = []
    for connection in connections.all():
        # A placeholder that Django creates for a project without databases.
        if connection.settings_dict["ENGINE"] == "django.db.backends.dummy":
            continue
        name = f"Database {connection.alias!r} ({connection.vendor})"
        if not connection.features.has_select_for_update:
            text = (
                f"{name} ignores select_for_update(): lock_row() and every other row lock protect nothing there, and "
                "no trigger raises the versions of rows that raw SQL changes."
            )
            hint = "Use PostgreSQL. Versions still hold for instances and for the query set's update()."
            messages.append(checks.Warning(text, hint=hint, obj=connection.alias, id="lockstep.W001"))
        elif connection.vendor != "postgresql":
            text = f"{name} has no version guards: raw SQL and other programs do not raise versions there."
            hint = "Use PostgreSQL, or let every writer raise the version itself."
            messages.append(checks.Warning(text, hint=hint, obj=connection.alias, id="lockstep.W002"))
    return messages


@register(Tags.database)
def check_tables(app_configs: object, databases: Sequence[str] | None = None, **kwargs: object) -> list[CheckMessage]:
    """Ask every installed model that derives from `ChecksTable` what its table lacks, and compare our triggers.

    Warnings, because ``migrate`` runs these checks before the migration that cures them. Not from ``Model.check()``,
    which Django 6.1 calls with every database, whether or not one was asked for.
    """
    models_of_tables = [
        model
        for model in apps.get_models()
        if issubclass(model, ChecksTable) and model._meta.managed and not model._meta.proxy
    ]
    messages = [
        message
        for alias in databases or ()
        for model in models_of_tables
        if router.allow_migrate_model(alias, model)
        for message in model.check_table(alias)
    ]
    outdated = [
        checks.Warning(
            f"The trigger {operation.trigger} on the table {model._meta.db_table!r} of database {alias!r} is not the "
            f"one that {model._meta.label} needs: every UPDATE that fires it may fail, or pass unguarded.",
            hint=f"Apply the migrations. If this stays, add one more with {type(operation).__name__}"
            f'("{model._meta.object_name}").',
            obj=model,
            id="lockstep.W006",
        )
        for alias in databases or ()
        for operation, model, _ in outdated_triggers(apps, connections[alias])
    ]
    return [*messages, *outdated]


def check_versioned(model: type[models.Model]) -> list[CheckMessage]:
    """Check the declaration of a versioned model: its manager, its version's options, its key, its references."""
    if model._meta.proxy:
        return []
    messages: list[CheckMessage] = []
    if not isinstance(model._default_manager.get_queryset(), VersionedQuerySet):
        messages.append(
            checks.Warning(
                f"The default manager of {model._meta.label} hides lock(), update_if_unchanged() and "
                "put_if_unchanged().",
                hint="Derive the manager from django_lockstep.locking.VersionedManager, or its query set from "
                "VersionedQuerySet.",
                obj=model,
                id="lockstep.W003",
            )
        )
    if version_field(model).model is model:
        messages += _check_version(model)
    return [*messages, *_changed_by_deletions(model)]


def _check_version(model: type[models.Model]) -> list[CheckMessage]:
    version = version_field(model)
    names = {field.name for field in model._meta.local_concrete_fields if field != version and not is_key(model, field)}
    messages: list[CheckMessage] = [
        checks.Error(
            f"The version of {model._meta.label} names {name!r} as uncounted, which is not another column of its "
            "table.",
            hint="Name fields of the model that has the version field, other than its key.",
            obj=model,
            id="lockstep.E040",
        )
        for name in version.uncounted
        if name not in names
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
    aliases = [alias for alias in connections if connections[alias].vendor not in {"postgresql", "unknown"}]
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
        for alias in aliases
        if router.allow_migrate_model(alias, model)
    ]


_CHANGES_NO_ROW = {"CASCADE", "PROTECT", "RESTRICT", "DO_NOTHING", "DB_CASCADE"}
"""Values of ``on_delete`` that change no referring row."""


def check_guard(model: type[models.Model], alias: str) -> list[CheckMessage]:
    """Warn of a versioned model's table without a version guard."""
    message = checks.Warning(
        f"Nothing raises the version of {model._meta.label} on database {alias!r} when queryset.update(), "
        "bulk_update() or raw SQL change its rows: a later stale save() overwrites such a change.",
        hint=f'Add a migration with django_lockstep.locking.AddVersionGuard("{model._meta.object_name}").',
        obj=model,
        id="lockstep.W004",
    )
    return [message] if is_missing_trigger(model, alias, AddVersionGuard.trigger) else []


def is_missing_trigger(model: type[models.Model], alias: str, trigger: str) -> bool:
    """Whether the model's table is there but this trigger is not (PostgreSQL)."""
    connection = connections[alias]
    if connection.vendor != "postgresql":
        return False
    table = connection.ops.quote_name(model._meta.db_table)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT to_regclass(%s) IS NOT NULL AND NOT EXISTS"
            " (SELECT FROM pg_trigger WHERE tgrelid = to_regclass(%s) AND tgname = %s AND tgenabled <> 'D')",
            [table, table, trigger],
        )
        return bool(cursor.fetchone()[0])


@register(Tags.urls)
def check_retries_in_views(app_configs: object, **kwargs: object) -> list[CheckMessage]:
    """Warn of views that are retried inside the transaction that ATOMIC_REQUESTS opens around them.

    Finds decorated view functions and handler methods of view classes.
    """
    atomic = [connection.alias for connection in connections.all() if connection.settings_dict["ATOMIC_REQUESTS"]]
    if not atomic:
        return []
    return [
        checks.Warning(
            f"{name} is decorated with retry_on_conflict, but ATOMIC_REQUESTS opens a transaction around it: every "
            "call raises TransactionManagementError.",
            hint="Decorate the view with transaction.non_atomic_requests and open atomic() inside of the retry.",
            obj=view,
            id="lockstep.W005",
        )
        for view in url_views(get_resolver().url_patterns)
        for name in _retried(view)
        if not set(atomic) <= getattr(view, "_non_atomic_requests", set())
    ]


def url_views(patterns: Iterable[URLPattern | URLResolver]) -> Iterable[Any]:
    """Yield the views behind the patterns, however deep."""
    for pattern in patterns:
        if isinstance(pattern, URLResolver):
            yield from url_views(pattern.url_patterns)
        else:
            yield pattern.callback


def _retried(view: Any) -> Iterable[str]:
    if policy_of(view):
        yield f"{view.__module__}.{view.__qualname__}"
    handlers = getattr(view, "view_class", None)
    for method in getattr(handlers, "http_method_names", ()):
        if policy_of(getattr(handlers, method, None)):
            yield f"{view.__module__}.{view.__qualname__}.{method}"
