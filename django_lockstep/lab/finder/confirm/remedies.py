"""Remedies: what fits each kind, and one that can be tried without changing a line: a row locked before everything."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from django.apps import apps
from django.db import models, router, transaction

from django_lockstep.lab.explorer import Exploration, Run, Step
from django_lockstep.lab.finder.confirm.forks import Fork
from django_lockstep.lab.finder.derive.candidates import Candidate
from django_lockstep.lab.wording import counted

__all__ = ["REMEDIES", "try_lock"]

_LOCK = "lock the row with select_for_update() before it is read, in the transaction that writes it"
_CONDITION = "compute and check in the UPDATE itself: filter(pk=..., field__gte=n).update(field=F('field') - n)"
_VERSION = "put the version that was read into the WHERE clause of the write, and refuse or retry if no row is left"
_UNIQUE = "a unique constraint, and get_or_create() or an IntegrityError that is handled"
_PARENT = "lock the row that the new ones belong to before they are looked for"
REMEDIES = {
    "read-modify-write": (_CONDITION, _LOCK, _VERSION),
    "check-then-act": (_CONDITION, _LOCK, _VERSION),
    "check-then-insert": (_UNIQUE, _PARENT),
    "write-skew": (_PARENT, "SERIALIZABLE transactions, retried when the server refuses one"),
    "lock-order": ("lock several rows in one order everywhere, such as that of their primary keys",),
    "late-lock": (_LOCK,),
    "effect-before-commit": ("transaction.on_commit()",),
}
"""What fits each kind of candidate, the first choice first."""

_INSERTED = re.compile(r'INSERT INTO "([^"]+)" \(([^)]*)\)')


# Half of what a fork may take, as there may be several rows to try.
_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class LockFirst:
    """An actor that locks one row, FOR NO KEY UPDATE, and then does in the same transaction what another one does."""

    model: type[models.Model]
    pk: str
    actor: Callable[[Any], Any]

    def __call__(self, fixture: Any) -> Any:
        # Where it will be written: the row of a replica cannot be locked.
        using = router.db_for_write(self.model)
        with transaction.atomic(using=using):
            self.model._base_manager.using(using).select_for_update(no_key=True).get(pk=self.pk)
            return self.actor(fixture)


def try_lock(candidate: Candidate, run: Run, fork: Fork, *, found: Exploration) -> str:
    """Explore the fork with a row locked first; return what was done if every schedule then ends right, or nothing."""
    # The row that was read before its parents: of two locks that help, the narrower is the better advice.
    for model, pk in dict.fromkeys([*_rows_read(candidate, run), *_parents(candidate, run)]):
        lock = candidate.table, model._meta.label, pk
        # Several candidates of one request often come to the same row.
        if lock not in fork.locked_first:
            actors = {name: LockFirst(model, pk, actor) for name, actor in fork.actors.items()}
            tried = replace(fork, actors=actors).explore(
                seconds=_SECONDS, tables=(candidate.table,), stop=True, before=found
            )
            fork.locked_first[lock] = tried.schedules if tried.verdict == "nothing found" else 0
        if schedules := fork.locked_first[lock]:
            return (
                f"with the row {pk} of {model._meta.label} locked first, in the same transaction, "
                f"{counted(schedules, 'schedule')} end as serial orders do"
            )
    return ""


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
