"""django-concurrency beside versioned models; an optional adapter."""

from __future__ import annotations

from concurrency.api import get_revision_of_object
from concurrency.core import ConcurrencyOptions
from django.db import models

from django_lockstep.locking.fields import version_field


def make_recognizable(model: type[models.Model]) -> None:
    """Let django-concurrency's API and its ``ConcurrencyTestMixin`` find the version of a `VersionedModel`.

    The model still checks its versions itself: ``disable_concurrency()`` has no effect on it. Raises ``TypeError`` for
    a model without a version.
    """
    options = ConcurrencyOptions()
    options.field, options.base, options.triggers = version_field(model), model, []
    options.manually = True  # keeps that package from wrapping _do_update() of derived models
    setattr(model, "_concurrencymeta", options)  # noqa: B010 - the names are that package's
    setattr(model, "get_concurrency_version", get_revision_of_object)  # noqa: B010
