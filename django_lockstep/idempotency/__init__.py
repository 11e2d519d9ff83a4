"""Idempotency: work that is done once for a key, however often it is asked for.

Import from here; the modules behind it may move. The model is `django_lockstep.idempotency.models.IdempotencyKey`.
"""

from typing import TYPE_CHECKING

from django_lockstep.lazy import lazy_exports

if TYPE_CHECKING:
    from django_lockstep.idempotency.errors import KeyInUse, KeyReused
    from django_lockstep.idempotency.operations import Once, idempotent
    from django_lockstep.idempotency.views import idempotent_view

__all__ = ["KeyInUse", "KeyReused", "Once", "idempotent", "idempotent_view"]

__getattr__, __dir__ = lazy_exports(__name__, "errors", "operations", "views")
