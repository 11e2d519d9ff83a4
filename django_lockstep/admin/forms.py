"""Forms that know which version they were made from, and compare before anything is saved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from django import forms
from django.db import models
from django.forms.utils import ErrorDict
from django.utils.functional import cached_property
from django.utils.translation import gettext as _

from django_lockstep.admin.comparison import DELETE, Comparison
from django_lockstep.admin.conflicts import CHOICE, MINE, THEIRS, Collected, Conflict
from django_lockstep.admin.tokens import FIELD, Seen, merged_fields, version_name
from django_lockstep.admin.values import Unusable, value_of

__all__ = ["SeenField", "SeenForm", "seen_form"]


class SeenInput(forms.HiddenInput):
    """The token, and the decisions that were made on the conflict page, which have to come along again."""

    decisions: Mapping[str, str] = MappingProxyType({})
    """By name in the form's data: whose value is to be saved."""

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> Any:
        """Return the hidden inputs."""
        html = super().render(name, value, attrs, renderer)
        for field, decision in self.decisions.items():
            html += forms.HiddenInput().render(CHOICE + field, decision)
        return html


class SeenField(forms.CharField):
    """The token's field; never a change of its own."""

    widget = SeenInput
    replacement: str | None = None
    """The token that is shown instead of the one that was sent."""

    def __init__(self) -> None:
        super().__init__(required=False, label="")

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Return False."""
        return False

    def bound_data(self, data: Any, initial: Any) -> Any:
        """Return the token that the form shows when it is shown again."""
        return self.replacement or data


class SeenForm(forms.ModelForm):  # type: ignore[type-arg]
    """Refuses what was typed over another state than the one that was shown.

    A form without a token, with a forged one or another object's has an error. One whose object has another version
    by now has an error too, and tells ``collected`` what differs. A row of a list or an inline in which nothing was
    typed is left as it is now, without any ado.
    """

    collected: ClassVar[Collected | None] = None
    """Where conflicts go; None where nothing is compared: on GET, and where a copy is saved as a new object."""
    is_row: ClassVar[bool] = False
    """Whether the form is a row of a list or an inline."""
    is_listed: ClassVar[bool] = False
    """Whether it is a row of a list, whose tokens stand in a column, and whose rows are saved one by one."""

    _seen: Any = SeenField()  # its name is FIELD

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._left_alone = False
        self._merged = merged_fields(self._meta.model, self.fields)
        self._theirs = {field.name: value_of(field, self.instance) for field in self._merged}
        self._now = None if self.instance._state.adding else Seen.of(self.instance, self._theirs)
        if self._now and not self.is_bound:
            self.initial[FIELD] = self._now.sign()
        if FIELD in self.fields and not self.is_row and (shown := self._posted if self.is_bound else self._now):
            self.fields[FIELD].widget.attrs["data-question"] = shown.without_values().sign()

    def full_clean(self) -> None:
        """Clean the form, and compare its object with what was shown."""
        if not self.is_bound or self.collected is None:
            super().full_clean()
            return
        seen, now = self._posted, self._now
        if now and seen and seen.version == now.version:
            self._follow(self._decided)
        name = str(self.instance) if now else ""
        super().full_clean()
        if now is None:
            self._look_for_deletion(seen)
        elif seen is None or seen.pk != now.pk:
            self._refuse_token()
        else:
            self._compare(seen, now, name=name)

    def has_changed(self) -> bool:
        """Whether there is something to save; a row that met a conflict is left alone."""
        return not self._left_alone and super().has_changed()

    @cached_property
    def _posted(self) -> Seen | None:
        if self.is_listed and self.collected:
            return self.collected.listed.get(self.data.get(self.add_prefix(self._meta.model._meta.pk.name), ""))
        return Seen.read(self.data.get(self.add_prefix(FIELD), ""), self._meta.model)

    def _decision(self, name: str) -> str | None:
        decision = self.data.get(CHOICE + self.add_prefix(name))
        return decision if decision in (MINE, THEIRS) else None

    @property
    def _decided(self) -> dict[str, str]:
        """The decisions about what a conflict page asks, whatever else was sent."""
        asked = (name for name in (*self._theirs, DELETE) if name in self.fields)
        return {name: decision for name in asked if (decision := self._decision(name))}

    def _follow(self, decisions: dict[str, str]) -> None:
        """Make fields keep what the database has: Django takes a disabled field's value from the instance.

        A field that was disabled before stays so: opening it is not for the request to decide.
        """
        for name, decision in decisions.items():
            if decision == THEIRS:
                self.fields[name].disabled = True
        if FIELD in self.fields:
            # Disabled fields are not sent: were the form shown again, they would come back empty and undecided.
            shown = {self.add_prefix(name): decision for name, decision in decisions.items()}
            self.fields[FIELD].widget.decisions = shown

    def _look_for_deletion(self, seen: Seen | None) -> None:
        """Tell of a row whose object is not found: it was shown, and is no longer there to be changed."""
        if seen is None or not self.is_row or self.collected is None:
            return
        self._left_alone = True
        self._errors, self.cleaned_data = ErrorDict(), {}
        if self._decision(FIELD) == THEIRS:
            return
        typed = tuple((str(field.label), str(field.data)) for field in self.visible_fields() if field.data)
        self._tell(Conflict(**self._facts(seen), pk=seen.pk, name="", now=None, gone=seen.is_gone(), typed=typed))
        if not self.is_listed:
            self.add_error(None, _("This object is not there any more."))

    def _refuse_token(self) -> None:
        """Refuse; what is sent next is compared field by field, as nobody knows what was shown."""
        self.add_error(
            None,
            _(
                "Nothing was saved, because the form did not say which version of this object it was made from. "
                "What you typed is still here. Save again to compare it with what is there now."
            ),
        )
        if FIELD in self.fields:
            self.fields[FIELD].replacement = Seen.unknown(self.instance).sign()  # type: ignore[attr-defined]

    def _compare(self, seen: Seen, now: Seen, *, name: str) -> None:
        sides = Comparison(
            base={f.name: seen.base_of(f, now=now, theirs=self._theirs[f.name]) for f in self._merged},
            mine={f.name: self._mine(f) for f in self._merged},
            theirs=self._theirs,
            deletes=bool(self.cleaned_data.get(DELETE)),
        )
        stale = seen.version != now.version
        if stale and self.is_row and sides.mine_is_untouched and not set(self.changed_data) - set(self._theirs):
            self._take_now()
        elif stale or sides.is_undecided(self._decided):
            self._tell_of_change(seen, now, sides, name=name)

    def _mine(self, field: models.Field[Any, Any]) -> Any:
        if field.name in self.cleaned_data:
            return value_of(field, self.instance)
        return Unusable(self[field.name].data or "")

    def _take_now(self) -> None:
        """Clean again, as if the row had been shown as it is now."""
        self._follow(dict.fromkeys(self._theirs, THEIRS))
        vars(self).pop("changed_data", None)
        super().full_clean()

    def _tell_of_change(self, seen: Seen, now: Seen, sides: Comparison, *, name: str) -> None:
        rows = sides.rows(self._merged, label=lambda field: str(self[field].label))
        # What was shown stays the base until all is decided, however often the object changes meanwhile.
        again = seen.moved_to(now)
        self._tell(Conflict(**self._facts(seen), pk=now.pk, name=name, now=again, rows=rows))
        if self.is_listed:
            self._left_alone = True
            return
        self.add_error(None, _("This object was changed since the form was opened."))
        # No version of a row: whatever ignores the error, and a row marked for deletion does, meets the guard.
        setattr(self.instance, version_name(self._meta.model), 0)

    def _facts(self, seen: Seen) -> dict[str, Any]:
        return {"prefix": self.prefix, "model": self._meta.model, "seen": seen}

    def _tell(self, conflict: Conflict) -> None:
        if self.collected is not None:
            self.collected.conflicts.append(conflict)


def seen_form(
    form: type[Any],
    collected: Collected | None,
    *,
    is_row: bool = False,
    is_listed: bool = False,
    without: Iterable[Any] = (),
) -> Any:
    """Return the form class with what `SeenForm` adds, for one request; ``without`` what it declares by these names."""
    bases = (form,) if issubclass(form, SeenForm) else (SeenForm, form)
    facts: dict[str, Any] = {"collected": collected, "is_row": is_row, "is_listed": is_listed}
    facts |= {name: None for name in without if name in form.declared_fields}
    if is_listed:
        facts[FIELD] = None
    metaclass: Any = type(form)
    return metaclass(form.__name__, bases, {"__module__": form.__module__, **facts})
