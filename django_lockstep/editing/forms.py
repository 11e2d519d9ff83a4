"""Forms that check edit locks in their validation, so that a refused save keeps the typed values on the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.exceptions import ValidationError

from django_lockstep.editing.errors import EditLocked, EditLockLost
from django_lockstep.editing.write_checks import require_instance_editable

if TYPE_CHECKING:
    from django_lockstep.editing.sessions import EditSession

__all__ = ["lock_checked_form", "lock_checked_formset"]


def lock_checked_form(form: Any, session: EditSession | None) -> Any:
    """Return the form class with the check in ``clean()``, which must run in a transaction.

    The session's record needs its check-out; any other record must not be checked out by another user.
    """

    class LockCheckedForm(form):  # type: ignore[misc]
        def clean(self) -> Any:
            cleaned = super().clean()
            if session is not None and session.is_of(self.instance):
                session.require_check_out()
            elif self.has_changed():
                _require_editable(self.instance)
            return cleaned

    LockCheckedForm.base_fields = form.base_fields  # keeps changes made to them since, instead of the model's fields
    LockCheckedForm.__name__, LockCheckedForm.__qualname__ = form.__name__, form.__qualname__
    return LockCheckedForm


def lock_checked_formset(formset: Any) -> Any:
    """Return the formset class with the check for each record that would be changed or deleted."""

    class LockCheckedFormSet(formset):  # type: ignore[misc]
        def clean(self) -> None:
            super().clean()
            for form in self.forms:
                if form.has_changed():
                    _require_editable(form.instance)

    return LockCheckedFormSet


def _require_editable(instance: Any) -> None:
    try:
        require_instance_editable(instance)
    except (EditLocked, EditLockLost) as error:
        raise ValidationError(str(error), code="edit_locked") from error
