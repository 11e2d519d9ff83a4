"""The admin that never loses typed input: `VersionedModelAdmin` and its pages."""

from typing import TYPE_CHECKING

from django_lockstep.lazy import lazy_exports

if TYPE_CHECKING:
    from django_lockstep.admin.versioned import (
        VersionedInlineMixin,
        VersionedModelAdmin,
        VersionedStackedInline,
        VersionedTabularInline,
    )

__all__ = ["VersionedInlineMixin", "VersionedModelAdmin", "VersionedStackedInline", "VersionedTabularInline"]

__getattr__, __dir__ = lazy_exports(__name__, "versioned")
