"""Forms that ask, as a part of their validation, whether they may be saved: what was typed stays on the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.exceptions import ValidationError

from django_lockstep.editing.errors import EditLocked, EditLockLost
from django_lockstep.editing.fences import fence_instance

if TYPE_CHECKING:
    from django_lockstep.editing.visits import Visit

__all__ = ["obeying_form", "obeying_formset"]


def obeying_form(form: Any, visit: Visit | None) -> Any:
    """Return the form class with the question asked in ``clean()``, which has to run in a transaction.

    The record of the visit needs its check-out; any other record must not be somebody else's.
    """

    class ObeyingForm(form):  # type: ignore[misc]
        def clean(self) -> Any:
            cleaned = super().clean()
            if visit is not None and visit.is_of(self.instance):
                visit.ask()
            elif self.has_changed():
                _ask(self.instance)
            return cleaned

    ObeyingForm.base_fields = form.base_fields  # what was done to them since, and not the model's afresh
    ObeyingForm.__name__, ObeyingForm.__qualname__ = form.__name__, form.__qualname__
    return ObeyingForm


def obeying_formset(formset: Any) -> Any:
    """Return the formset class with the question asked for each record that would be changed or deleted."""

    class ObeyingFormSet(formset):  # type: ignore[misc]
        def clean(self) -> None:
            super().clean()
            for form in self.forms:
                if form.has_changed():
                    _ask(form.instance)

    return ObeyingFormSet


def _ask(instance: Any) -> None:
    try:
        fence_instance(instance)
    except (EditLocked, EditLockLost) as error:
        raise ValidationError(str(error), code="edit_locked") from error
