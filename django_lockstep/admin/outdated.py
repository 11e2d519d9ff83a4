"""Objects that changed between the page that was shown and the action on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from django.db import models

from django_lockstep.admin.history import RecordedChange, changes_since
from django_lockstep.admin.tokens import Seen, merged_fields, version_of
from django_lockstep.admin.values import display_value, to_python_value, value_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Outdated:
    """One object that changed or disappeared."""

    pk: str
    seen: Seen | None
    """The state that was shown; None if the request has no token."""
    now: models.Model | None
    """The current object; None if it is not found."""

    @property
    def version_now(self) -> int | None:
        """The current version; None if the object is not found."""
        return version_of(self.now) if self.now else None

    @property
    def is_gone(self) -> bool:
        """Whether it was shown and then deleted; one not found otherwise may be hidden or never have existed."""
        return self.now is None and self.seen is not None and self.seen.is_gone()

    @property
    def differences(self) -> list[tuple[str, str | None, str]]:
        """The changed fields that the page showed: label, value before (None if unknown), value now."""
        if self.now is None or self.seen is None:
            return []
        base, digested, now = self.seen.base, self.seen.digested, Seen.of(self.now, self.seen.base)
        # A token from a URL has digests only; comparing them still finds the changed fields.
        current = now.without_values().base if digested else now.base
        differences = []
        for field in merged_fields(type(self.now), base):
            if base[field.name] != current[field.name]:
                before = None if digested else display_value(field, to_python_value(field, base[field.name]))
                after = display_value(field, value_of(field, self.now))
                differences.append((str(field.verbose_name), before, after))
        return differences

    def changes(self, model: type[models.Model]) -> list[RecordedChange]:
        """Return the changes recorded since the page was made."""
        return changes_since(model, self.pk, self.seen.made_at) if self.seen else []


def find_outdated(
    pks: Iterable[object], *, listed: Mapping[str, Seen], rows: Mapping[str, models.Model], complete: bool = True
) -> list[Outdated]:
    """Return the objects that have another version in ``rows`` than in ``listed``, or are missing in one of them.

    Without ``complete``, objects that were not listed are not compared.
    """
    compared = [pk for pk in map(str, pks) if complete or pk in listed]
    objects = [Outdated(pk=pk, seen=listed.get(pk), now=rows.get(pk)) for pk in compared]
    return [row for row in objects if row.seen is None or row.now is None or not row.seen.is_current(row.now)]
