"""Compares the shown, the typed and the current values, field by field."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.db import models
from django.utils.translation import gettext as _

from django_lockstep.admin.conflicts import MINE, THEIRS, FieldDifference
from django_lockstep.admin.values import display_value
from django_lockstep.locking.merge import merge_fields

__all__ = ["DELETE", "Comparison"]

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
        if self.deletes and changed:
            overwritten.append(DELETE)
        return any(name not in decisions for name in overwritten)

    def rows(self, fields: list[models.Field[Any, Any]], *, label: Callable[[str], str]) -> tuple[FieldDifference, ...]:
        """Return the fields whose values differ between the sides."""
        merge = merge_fields(self.base, self.mine, self.theirs, version=0)
        rows = [self._row(field, label(field.name), merge.values) for field in fields if self._differs(field)]
        return (*rows, self._deletion()) if self.deletes else tuple(rows)

    def _differs(self, field: models.Field[Any, Any]) -> bool:
        base, theirs = self.base[field.name], self.theirs[field.name]
        return bool(self.mine[field.name] != theirs or base != theirs)

    def _row(self, field: models.Field[Any, Any], label: str, merged: Mapping[str, object]) -> FieldDifference:
        name, choice = field.name, None
        if name in merged:
            choice = THEIRS if merged[name] == self.theirs[name] else MINE
        sides = {side: display_value(field, getattr(self, side)[name]) for side in ("base", "mine", "theirs")}
        same = bool(self.mine[name] == self.theirs[name])
        return FieldDifference(name=name, label=label, choice=choice, same=same, **sides)

    def _deletion(self) -> FieldDifference:
        return FieldDifference(
            name=DELETE, label=_("Delete?"), base="", theirs=_("keep it"), mine=_("delete it"), choice=None
        )
