"""Remedies: what fits each kind of candidate, and what is tried against a race where it was confirmed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from django.apps import apps
from django.db import models, router, transaction

from django_lockstep.lab.explorer import Exploration, Run, Step
from django_lockstep.lab.explorer.results import RunEnding
from django_lockstep.lab.finder.confirm.forks import Fork
from django_lockstep.lab.finder.confirm.patches import patches_for
from django_lockstep.lab.finder.derive.candidates import Candidate
from django_lockstep.lab.wording import counted

__all__ = ["REMEDIES", "ends_as", "try_lock", "try_patches"]

_LOCK = "lock the row with select_for_update() before it is read, in the transaction that writes it"
_CONDITION = "compute and check in the UPDATE itself: filter(pk=..., field__gte=n).update(field=F('field') - n)"
_VERSION = "put the version that was read into the WHERE clause of the write, and refuse or retry if no row is left"
_UNIQUE = "a unique constraint, and get_or_create() or an IntegrityError that is handled"
_FIELDS = "write only what was changed: save(update_fields=[...]), or filter(pk=...).update(...)"
_PARENT = "lock the row that the new ones belong to before they are looked for"
REMEDIES = {
    "read-modify-write": (_CONDITION, _LOCK, _VERSION),
    "check-then-act": (_CONDITION, _LOCK, _VERSION),
    "check-then-insert": (_UNIQUE, _PARENT),
    "whole-row-write": (_FIELDS, _LOCK, _VERSION),
    "deleted-row-write": (_FIELDS, _LOCK),
    "write-skew": (_PARENT, "SERIALIZABLE transactions, retried when the server refuses one"),
    "lock-order": ("lock several rows in one order everywhere, such as that of their primary keys",),
    "late-lock": (_LOCK,),
    "effect-before-commit": ("transaction.on_commit()",),
}
"""What fits each kind of candidate, the first choice first."""

_INSERTED = re.compile(r'INSERT INTO "([^"]+)" \(([^)]*)\)')
# Half of what a fork may take, as there may be several changes and rows to try.
_SECONDS = 10.0


def _right_schedules(candidate: Candidate, fork: Fork, exploration: Exploration) -> int:
    """Explore the fork with a remedy; return its schedules if all end right, and one as without the remedy; else 0."""
    tried = fork.explore(seconds=_SECONDS, tables=(candidate.table,), stop=True, before=exploration)
    # Code that a change has broken ends in the same error in every order.
    works = any(ends_as(end, exploration) for end in tried.outcomes)
    # Vacuous: one of the two may be refused in every schedule.
    return tried.schedules if works and tried.verdict in {"nothing found", "vacuous"} else 0


def ends_as(end: RunEnding, exploration: Exploration) -> bool:
    """Whether a right outcome of the exploration is this end."""
    ends = [(right.state, right.results, right.errors) for right in exploration.outcomes if right.holds]
    return (end.state, end.results, end.errors) in ends


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


def try_patches(candidate: Candidate, run: Run, fork: Fork, *, exploration: Exploration) -> tuple[str, str]:
    """Explore the fork with each change of the code that may help; return the first one's diff, and what it does."""
    reads = (step.transaction for step in run.steps if candidate.read and step.source == str(candidate.read.site))
    for patch in patches_for(candidate, in_transaction=next(reads, None) is not None):
        # Several candidates of one request may ask for the same change.
        key = candidate.table, patch.diff
        if key not in fork.remedies:
            with patch.applied() as is_applied:
                fork.remedies[key] = _right_schedules(candidate, fork, exploration) if is_applied else 0
        if schedules := fork.remedies[key]:
            return patch.diff, f"with this change {counted(schedules, 'schedule')} end as serial orders do"
    return "", ""


def try_lock(candidate: Candidate, run: Run, fork: Fork, *, exploration: Exploration) -> str:
    """Explore the fork with a row locked first; return what was done if every schedule then ends right, or nothing."""
    # The row that was read before its parents: of two locks that help, the narrower is the better advice.
    for model, pk in dict.fromkeys([*_rows_read(candidate, run), *_parents(candidate, run)]):
        lock = candidate.table, model._meta.label, pk
        # Several candidates of one request often come to the same row.
        if lock not in fork.remedies:
            actors = {name: LockFirst(model, pk, actor) for name, actor in fork.actors.items()}
            fork.remedies[lock] = _right_schedules(candidate, replace(fork, actors=actors), exploration)
        if schedules := fork.remedies[lock]:
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
        if _reads(step, candidate.table) and step.values:
            pk = step.values[0].get(model._meta.pk.column or "")
            if pk is not None:
                yield model, pk


def _parents(candidate: Candidate, run: Run) -> Iterator[tuple[type[models.Model], str]]:
    """Yield the rows that the inserted one refers to, first those by which rows were looked for before."""
    model = _models().get(candidate.table)
    inserts = ((_INSERTED.match(step.sql), step.arguments) for step in run.steps)
    columns, values = next(((into[2], row) for into, row in inserts if into and into[1] == candidate.table), ("", ()))
    if model is None or not columns:
        return
    inserted = dict(zip(re.findall(r'"([^"]+)"', columns), values, strict=False))
    searched = {value for step in run.steps if _reads(step, candidate.table) for value in step.arguments}
    parents = [(field, inserted.get(field.column or "", "NULL")) for field in model._meta.fields if field.is_relation]
    for parent, key in sorted(parents, key=lambda pair: pair[1] not in searched):
        if key != "NULL" and isinstance(parent.related_model, type):
            yield parent.related_model, key


def _reads(step: Step, table: str) -> bool:
    return step.sql.startswith("SELECT") and f'"{table}"' in step.sql


def _models() -> dict[str, type[models.Model]]:
    return {model._meta.db_table: model for model in apps.get_models(include_auto_created=True)}
