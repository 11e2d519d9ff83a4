"""Forms that know the version they were made from and compare it before saving."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

from django import forms
from django.db import models
from django.forms.utils import ErrorDict
from django.utils.functional import cached_property
from django.utils.translation import gettext as _

from django_lockstep.admin.conflicts import CHOICE, MINE, THEIRS, Collected, Conflict, FieldDifference
from django_lockstep.admin.tokens import FIELD, Seen, merged_fields, version_name
from django_lockstep.admin.values import InvalidInput, display_value, value_of
from django_lockstep.locking.merge import merge_fields


class SeenInput(forms.HiddenInput):
    """The token, and the decisions made on the conflict page, which must be submitted again."""

    decisions: Mapping[str, str] = MappingProxyType({})
    """By name in the form's data: whose value to save."""

    def render(self, name: str, value: object, attrs: Any = None, renderer: Any = None) -> Any:
        html = super().render(name, value, attrs, renderer)
        for field, decision in self.decisions.items():
            html += forms.HiddenInput().render(CHOICE + field, decision)
        return html


class SeenField(forms.CharField):
    """The token's field; it never counts as changed."""

    widget = SeenInput
    replacement: str | None = None
    """A token to show instead of the submitted one."""

    def __init__(self) -> None:
        super().__init__(required=False, label="")

    def has_changed(self, initial: object, data: object) -> bool:
        return False

    def bound_data(self, data: object, initial: object) -> Any:
        """Return the token to show when the form is shown again."""
        return self.replacement or data


DELETE = "DELETE"
"""The field that marks a row of an inline for deletion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The three sides of one object, each by field name."""

    base: Mapping[str, Any]
    mine: Mapping[str, Any]
    theirs: Mapping[str, Any]
    deletes: bool = False
    """Whether the user marked the object for deletion."""

    @property
    def mine_is_untouched(self) -> bool:
        """Whether the user changed nothing."""
        return not self.deletes and all(self.mine[name] == before for name, before in self.base.items())

    def is_undecided(self, decisions: Mapping[str, str]) -> bool:
        """Whether saving would overwrite another user's change without this user's decision."""
        changed = [name for name, before in self.base.items() if self.theirs[name] != before]
        overwritten = [name for name in changed if self.mine[name] != self.theirs[name]]
        # A deletion overwrites whatever changed, even where no field of the user's differs.
        if self.deletes and changed:
            overwritten.append(DELETE)
        return any(name not in decisions for name in overwritten)

    def rows(self, fields: list[models.Field[Any, Any]], *, label: Callable[[str], str]) -> tuple[FieldDifference, ...]:
        """Return the fields whose values differ between the sides."""
        # The version does not matter here: only which values could be merged.
        merge = merge_fields(self.base, self.mine, self.theirs, version=0)
        rows = []
        for field in fields:
            base, mine, theirs = (side[field.name] for side in (self.base, self.mine, self.theirs))
            if mine != theirs or base != theirs:
                rows.append(self._row(field, label(field.name), merge.values))
        if self.deletes:
            sides: dict[str, Any] = {"base": "", "theirs": _("keep it"), "mine": _("delete it")}
            rows.append(FieldDifference(name=DELETE, label=_("Delete?"), choice=None, **sides))
        return tuple(rows)

    def _row(self, field: models.Field[Any, Any], label: str, merged: Mapping[str, object]) -> FieldDifference:
        name, choice = field.name, None
        if name in merged:
            choice = THEIRS if merged[name] == self.theirs[name] else MINE
        sides = {side: display_value(field, getattr(self, side)[name]) for side in ("base", "mine", "theirs")}
        same = bool(self.mine[name] == self.theirs[name])
        return FieldDifference(name=name, label=label, choice=choice, same=same, **sides)


class SeenForm(forms.ModelForm):  # type: ignore[type-arg]
    """Rejects input for an object that changed since it was shown.

    A form without a token, with a forged one or with another object's token has an error. If the object has another
    version, the form has an error too and adds the differences to ``collected``. A row of a list or an inline in which
    nothing was typed silently keeps its current values.
    """

    collected: ClassVar[Collected | None] = None
    """Collects conflicts; None where nothing is compared: on GET, and when a copy is saved as a new object."""
    is_row: ClassVar[bool] = False
    """Whether the form is a row of a list or an inline."""
    is_listed: ClassVar[bool] = False
    """Whether it is a row of a list, whose tokens are in a column and whose rows are saved one by one."""

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
        """Clean the form, and compare its object with the version that was shown."""
        if not self.is_bound or self.collected is None:
            super().full_clean()
            return
        seen, now = self._posted, self._now
        # Decisions are about the version that the conflict page showed; after one more change they are asked for again.
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
        """The submitted decisions, limited to fields of the form."""
        names = (name for name in (*self._theirs, DELETE) if name in self.fields)
        return {name: decision for name in names if (decision := self._decision(name))}

    def _follow(self, decisions: dict[str, str]) -> None:
        """Disable the fields decided as theirs: Django then takes their values from the instance.

        A field that was disabled before stays disabled: a request must not enable it.
        """
        for name, decision in decisions.items():
            if decision == THEIRS:
                self.fields[name].disabled = True
        if FIELD in self.fields:
            # Browsers do not submit disabled fields: without this, a form shown again would lose the decisions.
            shown = {self.add_prefix(name): decision for name, decision in decisions.items()}
            self.fields[FIELD].widget.decisions = shown

    def _look_for_deletion(self, seen: Seen | None) -> None:
        """Report a row whose object was shown and is no longer found."""
        if seen is None or not self.is_row or self.collected is None:
            return
        self._left_alone = True
        self._errors, self.cleaned_data = ErrorDict(), {}
        if self._decision(FIELD) == THEIRS:
            return
        typed = tuple((str(field.label), str(field.data)) for field in self.visible_fields() if field.data)
        self._report(seen, pk=seen.pk, name="", now=None, gone=seen.is_gone(), typed=typed)
        if not self.is_listed:
            self.add_error(None, _("This object no longer exists."))

    def _refuse_token(self) -> None:
        """Add an error; the next submission is compared field by field, because the shown version is unknown."""
        self.add_error(
            None,
            _(
                "Nothing was saved: the form did not contain the version of the object that it was made from. "
                "What you typed is kept. Save again to compare it with the current version."
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
            # An untouched row of an inline: keep the other user's change instead of asking about it, and clean again as
            # if the row had been shown with its current values.
            self._follow(dict.fromkeys(self._theirs, THEIRS))
            vars(self).pop("changed_data", None)
            super().full_clean()
        elif stale or sides.is_undecided(self._decided):
            self._report_change(seen, now, sides, name=name)

    def _mine(self, field: models.Field[Any, Any]) -> Any:
        if field.name in self.cleaned_data:
            return value_of(field, self.instance)
        return InvalidInput(self[field.name].data or "")

    def _report_change(self, seen: Seen, now: Seen, sides: Comparison, *, name: str) -> None:
        rows = sides.rows(self._merged, label=lambda field: str(self[field].label))
        # The first version shown stays the base until all is decided, however often the object changes in the meantime.
        again = seen.moved_to(now)
        self._report(seen, pk=now.pk, name=name, now=again, rows=rows)
        if self.is_listed:
            self._left_alone = True
            return
        self.add_error(None, _("This object was changed after the form was opened."))
        # 0 is no row's version: a write that ignores this error (a row marked for deletion does) then fails as stale.
        setattr(self.instance, version_name(self._meta.model), 0)

    def _report(self, seen: Seen, **values: Any) -> None:
        if self.collected is not None:
            conflict = Conflict(prefix=self.prefix, model=self._meta.model, seen=seen, **values)
            self.collected.conflicts.append(conflict)


def seen_form(
    form: type[Any],
    collected: Collected | None,
    *,
    is_row: bool = False,
    is_listed: bool = False,
    without: Iterable[Any] = (),
) -> Any:
    """Return the form class based on `SeenForm`, for one request, less the declared fields in ``without``."""
    # A new class for each request: the admin makes forms from classes, to which nothing else could be passed.
    bases = (form,) if issubclass(form, SeenForm) else (SeenForm, form)
    attributes: dict[str, Any] = {"collected": collected, "is_row": is_row, "is_listed": is_listed}
    attributes |= {name: None for name in without if name in form.declared_fields}
    if is_listed:
        attributes[FIELD] = None
    metaclass: Any = type(form)
    return metaclass(form.__name__, bases, {"__module__": form.__module__, **attributes})
