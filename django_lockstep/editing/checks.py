"""System checks of edit locks."""

from __future__ import annotations

from collections.abc import Sequence

from django.apps import apps
from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Tags, register
from django.db import connections, models

from django_lockstep.editing.abstract import EditLockedModel

_MIDDLEWARE = "django_lockstep.editing.writers.EditLockMiddleware"
_AUTHENTICATION = "django.contrib.auth.middleware.AuthenticationMiddleware"


@register(Tags.models)
def check_order_of_bases(app_configs: object, **kwargs: object) -> list[CheckMessage]:
    """Report models whose other bases save before `EditLockedModel` checks."""
    return [
        checks.Error(
            f"{model._meta.label} inherits EditLockedModel after {bases[0].__name__}, whose save() runs first.",
            hint="Put EditLockedModel first among the bases.",
            obj=model,
            id="lockstep.E021",
        )
        for model in apps.get_models()
        if issubclass(model, EditLockedModel) and (bases := _saving_before(model))
    ]


def _saving_before(model: type[models.Model]) -> Sequence[type]:
    """Return the bases with their own ``save()`` before the mixin; the model's own ``save()`` calls super()."""
    order = model.__mro__[1:]
    before = order[: order.index(EditLockedModel)]
    return [base for base in before if "save" in vars(base) and not issubclass(base, EditLockedModel)]


@register(Tags.database)
def check_databases(
    app_configs: object, databases: Sequence[str] | None = None, **kwargs: object
) -> list[CheckMessage]:
    """Warn of databases without advisory locks between writes and check-outs."""
    return [
        checks.Warning(
            f"Database {alias!r} ({connections[alias].vendor}) has no transaction-level advisory locks: a check-out "
            "and a concurrent save or check-out of the same rows may both succeed.",
            hint="Use PostgreSQL.",
            obj=alias,
            id="lockstep.W021",
        )
        for alias in databases or ()
        if connections[alias].vendor not in ("postgresql", "sqlite")  # SQLite lets one transaction write at a time
    ]


@register(Tags.security)
def check_middleware(app_configs: object, **kwargs: object) -> list[CheckMessage]:
    """Report the middleware if it comes before authentication."""
    order = list(settings.MIDDLEWARE)
    if _MIDDLEWARE not in order or _AUTHENTICATION in order[: order.index(_MIDDLEWARE)]:
        return []
    return [
        checks.Error(
            "EditLockMiddleware comes before the authentication middleware, where requests have no user yet.",
            hint=f"Put {_MIDDLEWARE!r} after {_AUTHENTICATION!r}.",
            id="lockstep.E022",
        )
    ]
