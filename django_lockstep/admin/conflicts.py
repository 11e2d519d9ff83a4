"""What stands against saving a form: facts, for the page that shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Model
from django.http import HttpRequest

from django_lockstep.admin.tokens import Seen

__all__ = ["CHOICE", "MINE", "THEIRS", "Collected", "Conflict", "Row", "collect", "collected_of"]

CHOICE = "choice-"
"""What the name of a decision begins with; the name of the form's field follows."""
MINE, THEIRS = "mine", "theirs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One field of which the sides know different values."""

    name: str
    """The field's name in its form, without prefix."""
    label: str
    """The field's label."""
    base: str
    """What it was when the form was opened, as a person reads it."""
    theirs: str
    """What it is in the database."""
    mine: str
    """What was typed."""
    choice: str | None
    """What the merge comes to, or what was chosen before; None where a person has to decide."""
    same: bool = False
    """Whether both sides made the same of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """One object that was changed or deleted since its form was opened."""

    prefix: str | None
    """The form's prefix; None for the page's own form."""
    model: type[Model]
    """The object's model."""
    name: str
    """The object, as it names itself."""
    pk: Any
    """Its primary key, as far as it is known."""
    seen: Seen
    """What the form was made from."""
    now: Seen | None
    """What it would be made from now, with the base of ``seen``; None if the object is not found."""
    gone: bool = False
    """Whether the object is deleted; one that is not found otherwise is hidden from this person."""
    rows: tuple[Row, ...] = ()
    """The fields that differ."""
    typed: tuple[tuple[str, str], ...] = ()
    """What was typed, for an object that is not found."""

    @property
    def kind(self) -> str:
        """The model's name."""
        return str(self.model._meta.verbose_name)

    @property
    def position(self) -> int | None:
        """The number of the row in its list or inline, from 1; None for the page's own form."""
        number = (self.prefix or "").rpartition("-")[2]
        return int(number) + 1 if number.isdigit() else None

    def html_name(self, name: str) -> str:
        """Return the name that a field has in the form's data."""
        return f"{self.prefix}-{name}" if self.prefix else name

    def choice_name(self, name: str) -> str:
        """Return the name that the decision about a field has."""
        return CHOICE + self.html_name(name)

    @property
    def decisions(self) -> list[tuple[str, Row]]:
        """The rows, each with the name of its decision."""
        return [(self.choice_name(row.name), row) for row in self.rows]


@dataclass(slots=True, kw_only=True)
class Collected:
    """What one attempt to save a page has met."""

    conflicts: list[Conflict] = field(default_factory=list)
    """Every object that is not as it was shown."""
    saved: list[str] = field(default_factory=list)
    """The names of the objects that were saved."""
    listed: Mapping[str, Seen] = field(default_factory=dict)
    """The tokens of a list's rows, by primary key."""
    pk: Any = None
    """The primary key of the page's own object, once it was found."""
    missing: bool = False
    """Whether the page's own object was not found."""


_ATTRIBUTE = "_lockstep_admin_collected"


def collect(request: HttpRequest, **facts: Any) -> Collected:
    """Begin an attempt: what the forms of this request meet from now on is collected here."""
    collected = Collected(**facts)
    setattr(request, _ATTRIBUTE, collected)
    return collected


def collected_of(request: HttpRequest) -> Collected | None:
    """Return what is being collected; None where nothing is to be compared."""
    return getattr(request, _ATTRIBUTE, None)
