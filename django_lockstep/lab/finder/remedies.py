"""Remedies that can be tried without changing a line: a row locked before the request, in one transaction with it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from django.apps import apps
from django.db import models, transaction

from django_lockstep.lab.explorer import Run, Step
from django_lockstep.lab.finder.candidates import Candidate

__all__ = ["LockFirst", "lock_to_try"]

_INSERTED = re.compile(r'INSERT INTO "([^"]+)" \(([^)]*)\)')


@dataclass(frozen=True, slots=True)
class LockFirst:
    """An actor that locks one row, FOR NO KEY UPDATE, and then does in the same transaction what another one does."""

    model: type[models.Model]
    pk: str
    actor: Callable[[Any], Any]
    using: str

    def __call__(self, fixture: Any) -> Any:
        with transaction.atomic(using=self.using):
            self.model._base_manager.using(self.using).select_for_update(no_key=True).get(pk=self.pk)
            return self.actor(fixture)


def lock_to_try(candidate: Candidate, run: Run) -> tuple[type[models.Model], str] | None:
    """Return the row whose lock may help: the one read, or the parent of the one inserted; None if none is known."""
    return next(_rows_read(candidate, run), None) or next(_parents(candidate, run), None)


def _rows_read(candidate: Candidate, run: Run) -> Iterator[tuple[type[models.Model], str]]:
    model = _models().get(candidate.table)
    if model is None:
        return
    for step in run.steps:
        if f'"{candidate.table}"' in step.sql and step.sql.startswith("SELECT") and step.values:
            pk = step.values[0].get(model._meta.pk.column or "")
            if pk is not None:
                yield model, pk


def _parents(candidate: Candidate, run: Run) -> Iterator[tuple[type[models.Model], str]]:
    """Yield the rows that the inserted one refers to, first those by which rows were looked for before."""
    model = _models().get(candidate.table)
    inserted = next(
        (step for step in run.steps if (found := _INSERTED.match(step.sql)) and found[1] == candidate.table), None
    )
    if model is None or inserted is None:
        return
    columns = _INSERTED.match(inserted.sql)
    given = dict(zip(re.findall(r'"([^"]+)"', columns[2] if columns else ""), inserted.arguments, strict=False))
    asked = {value for step in run.steps if _reads(step, candidate.table) for value in step.arguments}
    parents = [(field, given.get(field.column or "", "NULL")) for field in model._meta.fields if field.is_relation]
    for field, key in sorted(parents, key=lambda pair: pair[1] not in asked):
        if key != "NULL" and isinstance(field.related_model, type):
            yield field.related_model, key


def _reads(step: Step, table: str) -> bool:
    return step.sql.startswith("SELECT") and f'"{table}"' in step.sql


def _models() -> dict[str, type[models.Model]]:
    return {model._meta.db_table: model for model in apps.get_models(include_auto_created=True)}
