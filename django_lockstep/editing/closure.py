"""The closure of a check-out: its own rows and, over foreign keys, the tables or records that they refer to.

Foreign keys of Django's models are followed, one-to-one fields included. A model that inherits from others has rows in
their tables as well; these belong to it and do not count as a step. A swapped user model is resolved as Django does.

Many-to-many fields are not followed, because their foreign keys are columns of the through model's table (which can be
checked out itself), nor are generic foreign keys, which name no table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from django.db import models

from django_lockstep.editing.errors import UnknownRecord
from django_lockstep.editing.targets import Target, record

__all__ = ["Closure", "closure_of", "own_records", "own_targets"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Closure:
    """The targets of a check-out, in the order of their names, so that two check-outs never deadlock."""

    own: tuple[Target, ...]
    """The target and its parents: to be edited."""
    references: tuple[Target, ...]
    """Their references: to be kept unchanged."""


def closure_of(target: Target, *, depth: int | None, using: str) -> Closure:
    """Return the target's own parts and its references over at most ``depth`` foreign keys (None: all of them).

    Depth 0 follows none, 1 the target's own, 2 also those of the tables it refers to. For a record its row is read, and
    those of the records in between. Raises `UnknownRecord` where the target's row does not exist.
    """
    rows = _Rows(using)
    own = rows.own(target)
    seen, edge, step = set(own), own, 0
    # Breadth first, with every target visited once: cycles of foreign keys end here.
    while edge and (depth is None or step < depth):
        found = [reference for one in edge for reference in rows.references(one)]
        edge = [part for part in dict.fromkeys(part for one in found for part in rows.parts(one)) if part not in seen]
        seen |= set(edge)
        step += 1
    return Closure(own=_sorted(own), references=_sorted(seen - set(own)))


def _sorted(targets: Iterable[Target]) -> tuple[Target, ...]:
    return tuple(sorted(targets, key=lambda one: one.name))


def own_targets(instance: models.Model) -> list[Target]:
    """Return the instance's rows in its own table and in its parents' tables; new rows have no key."""
    model = instance._meta.concrete_model or type(instance)
    return [Target(owner, _key_in(instance, owner)) for owner in (model, *model._meta.get_parent_list())]


def own_records(model: type[models.Model], pks: Iterable[object], *, using: str) -> list[Target]:
    """Return `own_targets` of the records with these primary keys, with at most one query.

    A record without a row has only the part in the model's own table. Raises `UnknownRecord` for what cannot be a
    primary key of the model.
    """
    targets = [record(model, pk) for pk in pks]
    if not model._meta.get_parent_list():
        return targets
    rows = model._base_manager.using(using).in_bulk([one.pk for one in targets])
    return [part for one in targets for part in (own_targets(rows[one.pk]) if one.pk in rows else [one])]


def _key_in(instance: models.Model, owner: type[models.Model]) -> Any:
    pk = instance.pk if owner is instance._meta.concrete_model else getattr(instance, owner._meta.pk.attname)
    return None if isinstance(pk, tuple) and None in pk else pk


class _Rows:
    """Reads each row at most once."""

    def __init__(self, using: str) -> None:
        self._using = using
        self._read: dict[Target, models.Model | None] = {}

    def own(self, target: Target) -> list[Target]:
        """Return the target's parts; raise `UnknownRecord` where there is no such row."""
        if target.pk is not None and self._row(target) is None:
            raise UnknownRecord(f"{target.model._meta.label} has no record {target.pk!r}")
        return self.parts(target)

    def parts(self, target: Target) -> list[Target]:
        """Return the target and its parents. A foreign key without a row refers to that key alone."""
        parents = target.model._meta.get_parent_list()
        if target.pk is None or not parents:
            return [target, *map(Target, parents)]
        row = self._row(target)
        return [target] if row is None else own_targets(row)

    def references(self, target: Target) -> Iterator[Target]:
        """Yield the targets that the columns of the target's own table refer to."""
        fields: list[Any] = [field for field in target.model._meta.local_concrete_fields if _is_reference(field)]
        row = self._row(target) if fields and target.pk is not None else None
        for field in fields:
            remote = field.remote_field.model._meta.concrete_model
            if target.pk is None:
                yield Target(remote)
            elif (value := getattr(row, field.attname, None)) is not None:
                pk = value if field.target_field.primary_key else self._key_of(remote, field, value)
                if pk is not None:
                    yield Target(remote, pk)

    def _row(self, target: Target) -> models.Model | None:
        if target not in self._read:
            self._read[target] = target.model._base_manager.using(self._using).filter(pk=target.pk).first()
        return self._read[target]

    def _key_of(self, remote: type[models.Model], field: Any, value: object) -> Any:
        """Return the primary key of the row that is referred to by another unique column; None without a row."""
        rows = remote._base_manager.using(self._using).filter(**{field.target_field.attname: value})
        return rows.values_list("pk", flat=True).first()


def _is_reference(field: object) -> bool:
    return isinstance(field, models.ForeignKey) and not field.remote_field.parent_link
