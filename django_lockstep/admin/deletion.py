"""Deleting one object only in the version that the confirmation showed."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import flatten_fieldsets, unquote
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _

from django_lockstep.admin.addresses import find_by_url
from django_lockstep.admin.outdated import Outdated
from django_lockstep.admin.pages import outdated_page
from django_lockstep.admin.tokens import FIELD, Seen, version_of
from django_lockstep.errors import StaleVersionError, raise_if_committed

_ATTRIBUTE = "_lockstep_admin_deletes"
LONGEST = 1500
"""Maximum length of a token in a URL; a longer one is replaced by a token without field values."""


class DeletionMixin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Puts a token into the URL of the confirmation, to which Django's form posts."""

    def delete_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        """Delete an unchanged object; otherwise answer 409 with the changes, and delete nothing."""
        seen = Seen.read(request.GET.get(FIELD, ""), self.model)
        setattr(request, _ATTRIBUTE, seen)
        if request.method == "GET":
            obj = find_by_url(self, request, object_id)
            if obj is not None and self.has_delete_permission(request, obj):
                if FIELD not in request.GET:
                    return HttpResponseRedirect(self._confirmation(request, obj))
                if not _covers(seen, obj):
                    return self._refuse(request, object_id, seen)
        try:
            return super().delete_view(request, object_id, extra_context)
        except StaleVersionError as error:
            raise_if_committed(error)
            return self._refuse(request, object_id, seen)

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        """Delete the object if it is unchanged since the confirmation; raise `StaleVersionError` otherwise."""
        if hasattr(request, _ATTRIBUTE) and not _covers(getattr(request, _ATTRIBUTE), obj):
            # Compared with the object that Django is about to delete, in its transaction.
            raise StaleVersionError(model=self.model, pk=obj.pk, actual=version_of(obj), target=obj)
        super().delete_model(request, obj)

    def _refuse(self, request: HttpRequest, object_id: str, seen: Seen | None) -> HttpResponse:
        obj = find_by_url(self, request, object_id)
        source = seen if obj is None else obj
        outdated = Outdated(pk=unquote(object_id) if source is None else str(source.pk), seen=seen, now=obj)
        again = self._confirmation(request, obj) if obj is not None else None
        title = _("Not deleted: it was changed in the meantime")
        return outdated_page(request, self, [outdated], title=title, again=again)

    def _confirmation(self, request: HttpRequest, obj: Any) -> str:
        """Return the URL of the confirmation for the object's current version."""
        query = request.GET.copy()
        fields = flatten_fieldsets(self.get_fieldsets(request, obj))
        token = Seen.of(obj, fields).without_values().sign()
        # URLs have a practical length limit; the version alone still detects every change.
        query[FIELD] = token if len(token) <= LONGEST else Seen.of(obj).sign()
        return f"{request.path}?{query.urlencode()}"


def _covers(seen: Seen | None, obj: Any) -> bool:
    return seen is not None and seen.is_about(obj) and seen.is_current(obj)
