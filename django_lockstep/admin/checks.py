"""A system check of admin classes that save versioned rows without their version."""

from __future__ import annotations

from typing import Any

from django.contrib.admin import sites
from django.contrib.admin.options import BaseModelAdmin, InlineModelAdmin
from django.contrib.admin.utils import flatten_fieldsets
from django.core import checks
from django.core.checks import CheckMessage, Tags, register
from django.forms.models import ModelFormOptions

from django_lockstep.admin.versioned import ChangeFormMixin, VersionedInlineMixin
from django_lockstep.locking.fields import version_field
from django_lockstep.locking.versions import VersionedModel

_USUAL = {BaseModelAdmin.has_change_permission, InlineModelAdmin.has_change_permission}


@register(Tags.admin)
def check_forms(app_configs: object, **kwargs: object) -> list[CheckMessage]:
    """Warn of forms that overwrite what was saved since they were opened."""
    admins = [admin for site in sites.all_sites for admin in site._registry.values()]
    forms: dict[Any, Any] = {type(admin): admin.model for admin in admins}
    forms |= {inline: inline.model for admin in admins for inline in admin.inlines}
    return [
        checks.Warning(
            f"The form of {form.__module__}.{form.__qualname__} leaves the version of {model._meta.label} out: it "
            "overwrites what another user has saved since the page was opened.",
            hint="Derive the class from VersionedModelAdmin (an inline: from VersionedInlineMixin), or add "
            f"{version_field(model).name!r} to its fields.",
            obj=form,
            id="lockstep.W030",
        )
        for form, model in forms.items()
        if issubclass(model, VersionedModel) and _leaves_out_version(form, model)
    ]


def _leaves_out_version(form: Any, model: type[VersionedModel]) -> bool:
    """Whether rows can be changed without the version, as far as the class says it, whose methods may decide."""
    if issubclass(form, ChangeFormMixin | VersionedInlineMixin) or form.has_change_permission not in _USUAL:
        return False
    version = version_field(model).name
    meta: Any = getattr(form.form, "_meta", ModelFormOptions())
    everything = [field.name for field in model._meta.fields]
    names = flatten_fieldsets(form.fieldsets or [(None, {"fields": form.fields or meta.fields or everything})])
    left_out = {*(form.exclude or meta.exclude or ()), *form.readonly_fields}
    return not left_out.issuperset(names) and (version not in names or version in left_out)
