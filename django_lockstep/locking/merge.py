"""Three-way merge of one row: the base, my changes, their changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldConflict:
    """One field that both sides changed, to different values."""

    base: Any
    """The value that both started from."""
    mine: Any
    """The value that could not be written."""
    theirs: Any
    """The value in the database."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """The result of merging two changes of one row."""

    version: int
    """The version of theirs, which the merged values replace."""
    values: dict[str, Any] = field(default_factory=dict)
    """By field: the value of the side that changed it, or the common value where the sides agree."""
    conflicts: dict[str, FieldConflict] = field(default_factory=dict)
    """By field: the conflicts that a person must resolve."""

    @property
    def disjoint(self) -> bool:
        """Whether the two sides changed different fields, so that there is no conflict."""
        return not self.conflicts


def merge_fields(
    base: Mapping[str, object], mine: Mapping[str, object], theirs: Mapping[str, object], *, version: int
) -> Merge:
    """Merge field by field, over the fields of ``base``.

    A field that is missing on one side counts as unchanged there. This is the three-way merge of version control, by
    field instead of by line.
    """
    values, conflicts = {}, {}
    for name, before in base.items():
        my, their = mine.get(name, before), theirs.get(name, before)
        if my == their or their == before:
            values[name] = my
        elif my == before:
            values[name] = their
        else:
            conflicts[name] = FieldConflict(base=before, mine=my, theirs=their)
    return Merge(version=version, values=values, conflicts=conflicts)
