"""Objects that are not as they were when somebody decided what to do with them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from django.db import models

from django_lockstep.admin.history import Change, changes_since
from django_lockstep.admin.tokens import Seen, merged_fields, version_of
from django_lockstep.admin.values import python, shown, value_of

__all__ = ["Outdated", "outdated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outdated:
    """One such object."""

    pk: str
    """Its primary key."""
    seen: Seen | None
    """What was shown of it; None where the request does not say."""
    now: models.Model | None
    """What it is; None if it is not found."""

    @property
    def version_now(self) -> int | None:
        """Its version; None if it is not found."""
        return version_of(self.now) if self.now else None

    @property
    def is_gone(self) -> bool:
        """Whether it was shown and is deleted since; one that is not found otherwise may be hidden, or never was."""
        return self.now is None and self.seen is not None and self.seen.is_gone()

    @property
    def differences(self) -> list[tuple[str, str | None, str]]:
        """What changed, of the fields that the page showed: label, before (None where it is not known), now."""
        if self.now is None or self.seen is None:
            return []
        return list(self._differences(self.seen, self.now))

    def _differences(self, seen: Seen, obj: models.Model) -> Iterator[tuple[str, str | None, str]]:
        now = Seen.of(obj, seen.base)
        compared = now.without_values() if seen.digested else now
        for field in merged_fields(type(obj), seen.base):
            if seen.base[field.name] != compared.base[field.name]:
                before = None if seen.digested else shown(field, python(field, seen.base[field.name]))
                yield str(field.verbose_name), before, shown(field, value_of(field, obj))

    def changes(self, model: type[models.Model]) -> list[Change]:
        """Return who changed it since."""
        return changes_since(model, self.pk, self.seen.made_at) if self.seen else []


def outdated(
    pks: Iterable[object], *, listed: Mapping[str, Seen], rows: Mapping[str, models.Model], complete: bool = True
) -> list[Outdated]:
    """Return those of the objects that have another version in ``rows`` than in ``listed``, or are in one alone.

    Without ``complete`` an object that was not listed is taken as it is.
    """
    found = [Outdated(pk=str(pk), seen=listed.get(str(pk)), now=rows.get(str(pk))) for pk in pks]
    return [it for it in found if (it.seen or complete) and not _is_current(it)]


def _is_current(it: Outdated) -> bool:
    return it.seen is not None and it.now is not None and it.seen.is_current(it.now)
