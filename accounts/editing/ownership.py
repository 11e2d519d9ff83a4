"""Whose check-out it is: found by its token, or by its editor."""

from __future__ import annotations

from typing import Any

from accounts.editing.errors import EditLockLost, NotTheEditor, WrongToken
from accounts.editing.models import CheckOut
from accounts.editing.targets import Target
from accounts.editing.tokens import digest_of, matches

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
    rows = rows.select_for_update(no_key=True)
    if token is None:
        found = rows.filter(editor=editor, ended_at=None).first()
        if found is None:
            raise NotTheEditor(f"{editor.get_username()} has not checked out {target.name}")
        return found
    found = rows.filter(digest=digest_of(token)).first()
    if found is None or not matches(token, found.digest):
        raise WrongToken(f"The token belongs to no check-out of {target.name}")
    if found.editor_id != editor.pk:
        raise NotTheEditor(f"{target.name} was checked out by somebody else than {editor.get_username()}")
    return found


def lost(check_out: CheckOut, *, using: str) -> EditLockLost:
    """Return the error that tells why the check-out has ended; one that nobody ended has expired."""
    row = CheckOut.objects.using(using).select_related("ended_by").get(pk=check_out.pk)
    how = row.ended_how or CheckOut.End.EXPIRED.value
    by = row.ended_by.get_username() if row.ended_by else ""
    at = row.ended_at or row.expires_at
    words = {"expired": "has expired", "taken over": f"was taken over by {by}", "checked in": "was checked in"}[how]
    return EditLockLost(f"The check-out of {row.target_name} {words} at {at:%H:%M:%S}", how=how, by=by, at=at)
