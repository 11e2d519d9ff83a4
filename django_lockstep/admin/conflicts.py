"""Conflicts that prevent saving a form, as plain data for the page that shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Model
from django.http import HttpRequest

from django_lockstep.admin.tokens import Seen

CHOICE = "choice-"
"""Prefix of a decision's name; the name of the form's field follows."""
MINE, THEIRS = "mine", "theirs"


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldDifference:
    """One field whose values differ between the sides."""

    name: str
    """The field's name in its form, without prefix."""
    label: str
    base: str
    """The value when the form was opened, formatted."""
    theirs: str
    """The value in the database."""
    mine: str
    """The typed value."""
    choice: str | None
    """The result of the merge, or an earlier choice; None where the user must decide."""
    same: bool = False
    """Whether both sides set the same value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """One object that was changed or deleted since its form was opened."""

    prefix: str | None
    """The form's prefix; None for the page's own form."""
    model: type[Model]
    name: str
    """The object's string representation."""
    pk: Any
    """Its primary key, if known."""
    seen: Seen
    """The object as the form showed it."""
    now: Seen | None
    """The current state, with the base of ``seen``; None if the object is not found."""
    gone: bool = False
    """Whether the object is deleted; an object that is not found otherwise is hidden from this user."""
    rows: tuple[FieldDifference, ...] = ()
    """The fields that differ."""
    typed: tuple[tuple[str, str], ...] = ()
    """The typed values, for an object that is not found."""

    @property
    def kind(self) -> str:
        return str(self.model._meta.verbose_name)

    @property
    def position(self) -> int | None:
        """The number of the row in its list or inline, from 1; None for the page's own form."""
        number = (self.prefix or "").rpartition("-")[2]
        return int(number) + 1 if number.isdigit() else None

    def html_name(self, name: str) -> str:
        """Return the field's name in the form's data."""
        return f"{self.prefix}-{name}" if self.prefix else name

    def choice_name(self, name: str) -> str:
        """Return the name of the decision about a field."""
        return CHOICE + self.html_name(name)

    @property
    def decisions(self) -> list[tuple[str, FieldDifference]]:
        """The rows, each with the name of its decision."""
        return [(self.choice_name(row.name), row) for row in self.rows]


@dataclass(slots=True, kw_only=True)
class Collected:
    """The results of one attempt to save a page."""

    conflicts: list[Conflict] = field(default_factory=list)
    """Every object that changed since it was shown."""
    saved: list[str] = field(default_factory=list)
    """The names of the objects that were saved."""
    listed: Mapping[str, Seen] = field(default_factory=dict)
    """The tokens of a list's rows, by primary key."""
    pk: Any = None
    """The primary key of the page's own object, once it was found."""
    missing: bool = False
    """Whether the page's own object was not found."""


_ATTRIBUTE = "_lockstep_admin_collected"


def collect(request: HttpRequest, **values: Any) -> Collected:
    """Begin an attempt: conflicts of this request's forms are collected from now on."""
    collected = Collected(**values)
    # On the request: nothing else reaches the forms that report conflicts, which Django's admin makes deep inside.
    setattr(request, _ATTRIBUTE, collected)
    return collected


def collected_of(request: HttpRequest) -> Collected | None:
    """Return the running collection; None where nothing is compared."""
    return getattr(request, _ATTRIBUTE, None)
