"""What an address of the admin names; needs no admin to be installed."""

from __future__ import annotations

from typing import Any

from django.contrib.admin.exceptions import DisallowedModelAdminToField
from django.contrib.admin.options import TO_FIELD_VAR
from django.contrib.admin.utils import unquote
from django.http import HttpRequest

__all__ = ["addressed"]


def addressed(admin: Any, request: HttpRequest, object_id: str) -> Any:
    """Return the object that the address names, by its key or as links beside a related field do; None without one.

    Raises ``DisallowedModelAdminToField``, as Django's views, for a field that nothing refers to.
    """
    field = request.POST.get(TO_FIELD_VAR, request.GET.get(TO_FIELD_VAR))
    if field and not admin.to_field_allowed(request, field):
        raise DisallowedModelAdminToField(f"The field {field} cannot be referenced.")
    return admin.get_object(request, unquote(object_id), field)
