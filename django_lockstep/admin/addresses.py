"""Finds the object that an admin URL names; the admin does not have to be installed."""

from __future__ import annotations

from typing import Any

from django.contrib.admin import ModelAdmin
from django.contrib.admin.exceptions import DisallowedModelAdminToField
from django.contrib.admin.options import TO_FIELD_VAR
from django.contrib.admin.utils import unquote
from django.db.models import Model
from django.http import HttpRequest


def find_by_url(admin: ModelAdmin[Any], request: HttpRequest, object_id: str) -> Model | None:
    """Return the object of the URL, by its key or by the field of a related-object link; None without one.

    Raises ``DisallowedModelAdminToField``, as Django's views do, for a field that nothing refers to.
    """
    field = request.POST.get(TO_FIELD_VAR, request.GET.get(TO_FIELD_VAR))
    if field and not admin.to_field_allowed(request, field):
        raise DisallowedModelAdminToField(f"The field {field} cannot be referenced.")
    return admin.get_object(request, unquote(object_id), field)
