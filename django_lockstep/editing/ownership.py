"""Whose check-out it is: found by its token, or by its editor."""

from __future__ import annotations

from typing import Any

from django.db import connections
from django.utils.translation import gettext as _

from django_lockstep.editing.clock import time_of_day
from django_lockstep.editing.errors import EditLockLost, NotTheEditor, WrongToken
from django_lockstep.editing.models import CheckOut
from django_lockstep.editing.targets import Target
from django_lockstep.editing.tokens import digest_of, matches

__all__ = ["lost", "owned", "require_person"]


def require_person(editor: Any) -> None:
    """Raise `NotTheEditor` unless it is a user who exists."""
    if getattr(editor, "pk", None) is None:
        raise NotTheEditor(f"{editor!r} is no saved user and can check out nothing")


def owned(target: Target, editor: Any, *, token: str | None, using: str) -> CheckOut:
    """Return the editor's check-out of the target, with its row locked (FOR NO KEY UPDATE); it may have ended.

    Without a token it is the latest that has not been ended. Raises `WrongToken`, `NotTheEditor`. Needs a transaction.
    """
    require_person(editor)
    rows = CheckOut.objects.using(using).filter(model=target.table, object_pk=target.key).order_by("-pk")
    rows = rows.select_for_update(no_key=connections[using].features.has_select_for_no_key_update)
    if token is None:
        found = rows.filter(editor=editor, ended_at=None).first()
        if found is None:
            words = _("%(editor)s has not checked out %(what)s")
            raise NotTheEditor(words % {"editor": editor.get_username(), "what": target.name})
        if found.require_token:
            raise WrongToken(_("The check-out of %(what)s requires its token") % {"what": target.name})
        return found
    found = rows.filter(digest=digest_of(token)).first()
    if found is None or not matches(token, found.digest):
        raise WrongToken(_("The token belongs to no check-out of %(what)s") % {"what": target.name})
    if found.editor_id != editor.pk:
        words = _("%(what)s was checked out by somebody else than %(editor)s")
        raise NotTheEditor(words % {"what": target.name, "editor": editor.get_username()})
    return found


def lost(check_out: CheckOut, *, using: str) -> EditLockLost:
    """Return the error that tells why the check-out has ended; one that nobody ended has expired."""
    row = CheckOut.objects.using(using).select_related("ended_by").get(pk=check_out.pk)
    how = row.ended_how or CheckOut.End.EXPIRED.value
    by = row.ended_by.get_username() if row.ended_by else ""
    at = row.ended_at or row.expires_at
    words = {
        "expired": _("The check-out of %(what)s has expired at %(at)s"),
        "taken over": _("The check-out of %(what)s was taken over by %(by)s at %(at)s"),
        "checked in": _("The check-out of %(what)s was checked in at %(at)s"),
    }[how]
    return EditLockLost(words % {"what": row.target_name, "by": by, "at": time_of_day(at)}, how=how, by=by, at=at)
