"""System checks of ``LOCKSTEP_STORES``."""

from __future__ import annotations

from collections.abc import Sequence

from django.core import checks
from django.core.checks import CheckMessage, Error, Tags, register
from django.core.exceptions import ImproperlyConfigured

from django_lockstep.stores.conf import configured_stores, get_store
from django_lockstep.stores.dynamodb.store import DynamoStore
from django_lockstep.stores.errors import StoreError


@register
def check_stores(app_configs: object, **kwargs: object) -> list[CheckMessage]:
    """Report stores whose options are wrong, or whose extra is not installed; sends nothing."""
    return [message for name in configured_stores() for message in _unusable(name)]


def _unusable(name: str) -> list[CheckMessage]:
    try:
        store = get_store(name)
        if isinstance(store, DynamoStore):
            import boto3  # noqa: F401 - whether it is there
    except ImproperlyConfigured as error:
        return [Error(str(error), obj=name, id="lockstep.E050")]
    except ImportError:
        hint = "Install django-lockstep[dynamodb]."
        return [Error(f"Store {name!r} needs boto3, which is not installed.", hint=hint, obj=name, id="lockstep.E051")]
    return []


@register(Tags.database)
def check_tables(app_configs: object, databases: Sequence[str] | None = None, **kwargs: object) -> list[CheckMessage]:
    """Report DynamoDB tables that are missing or have another key; asks the servers, as checks of databases do."""
    stores = (get_store(name) for name in configured_stores() if not _unusable(name))
    tables = (store for store in stores if isinstance(store, DynamoStore)) if databases else ()
    return [message for store in tables for message in _of_table(store)]


def _of_table(store: DynamoStore) -> list[CheckMessage]:
    try:
        problem = store.problem()
    except StoreError as error:
        return [checks.Warning(f"Table {store.table!r} was not checked: {error}", obj=store.name, id="lockstep.W050")]
    hint = "Run manage.py create_stores, or name another table."
    return (
        [Error(f"Store {store.name!r}: {problem}.", hint=hint, obj=store.name, id="lockstep.E052")] if problem else []
    )
