"""Lock plans: what a check-out takes, determined before anything is written.

That is its own rows and, over foreign keys, the tables or records that they refer to. Foreign keys of Django's models
are followed, one-to-one fields included. A model that inherits from others has rows in their tables as well; these
belong to it and do not count as a step. A swapped user model is resolved as Django does.

Many-to-many fields are not followed, because their foreign keys are columns of the through model's table (which can be
checked out itself), nor are generic foreign keys, which name no table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from django.db import models

from django_lockstep.editing.advisory import lock_for_check_out
from django_lockstep.editing.errors import ReferencesChanged, UnknownRecord, UnrelatedTarget
from django_lockstep.editing.holds import LockRequest
from django_lockstep.editing.models import LONGEST_KEY, CheckOut, EditLock, Status
from django_lockstep.editing.targets import Target, parse_target, record, target_of

Related = Literal["references", "none"] | list[Any]
"""Everything over ``depth`` foreign keys, nothing, or the tables and records of a list."""


def closure_of(target: Target, *, depth: int | None, using: str) -> tuple[tuple[Target, ...], tuple[Target, ...]]:
    """Return the target's own parts, to be edited, and its references, to be kept unchanged.

    References are followed over at most ``depth`` foreign keys (None: all of them): depth 0 follows none, 1 the
    target's own, 2 also those of the tables it refers to. For a record its row is read, and those of the records in
    between. Raises `UnknownRecord` where the target's row does not exist.
    """
    rows = _Rows(using)
    if target.pk is not None and rows.row(target) is None:
        raise UnknownRecord(f"{target.model._meta.label} has no record {target.pk!r}")
    own = rows.parts(target)
    seen, edge, step = set(own), own, 0
    # Breadth first, with every target visited once: cycles of foreign keys end here.
    while edge and (depth is None or step < depth):
        references = [reference for table in edge for reference in rows.references(table)]
        parts = dict.fromkeys(part for reference in references for part in rows.parts(reference))
        edge = [part for part in parts if part not in seen]
        seen |= set(edge)
        step += 1
    return _sorted(own), _sorted(seen - set(own))


def _sorted(targets: Iterable[Target]) -> tuple[Target, ...]:
    # By name, so that two check-outs never deadlock, and a plan that is computed again can be compared with the first.
    return tuple(sorted(targets, key=lambda target: target.name))


def own_targets(instance: models.Model) -> list[Target]:
    """Return the instance's rows in its own table and in its parents' tables; new rows have no key."""
    model = instance._meta.concrete_model or type(instance)
    targets = []
    for owner in (model, *model._meta.get_parent_list()):
        pk = instance.pk if owner is instance._meta.concrete_model else getattr(instance, owner._meta.pk.attname)
        # A composite key of which a part is missing is that of a row that is not saved yet.
        targets.append(Target(owner, None if isinstance(pk, tuple) and None in pk else pk))
    return targets


def own_records(model: type[models.Model], pks: Iterable[object], *, using: str) -> list[Target]:
    """Return `own_targets` of the records with these primary keys, with at most one query.

    A record without a row has only the part in the model's own table. Raises `UnknownRecord` for what cannot be a
    primary key of the model.
    """
    targets = [record(model, pk) for pk in pks]
    if not model._meta.get_parent_list():
        return targets
    rows = model._base_manager.using(using).in_bulk([target.pk for target in targets])
    return [part for row in targets for part in (own_targets(rows[row.pk]) if row.pk in rows else [row])]


class _Rows:
    """Reads each row at most once."""

    def __init__(self, using: str) -> None:
        self._using = using
        self._read: dict[Target, models.Model | None] = {}

    def parts(self, target: Target) -> list[Target]:
        """Return the target and its parents. A foreign key without a row refers to that key alone."""
        parents = target.model._meta.get_parent_list()
        if target.pk is None or not parents:
            return [target, *map(Target, parents)]
        row = self.row(target)
        return [target] if row is None else own_targets(row)

    def references(self, target: Target) -> Iterator[Target]:
        """Yield the targets that the columns of the target's own table refer to."""
        fields: list[Any] = [
            field
            for field in target.model._meta.local_concrete_fields
            if isinstance(field, models.ForeignKey) and not field.remote_field.parent_link
        ]
        row = self.row(target) if fields and target.pk is not None else None
        for field in fields:
            remote = field.remote_field.model._meta.concrete_model
            if target.pk is None:
                yield Target(remote)
            elif (value := getattr(row, field.attname, None)) is not None:
                pk = value
                if not field.target_field.primary_key:
                    # A foreign key with to_field: its value is not the primary key, by which records are locked.
                    rows = remote._base_manager.using(self._using).filter(**{field.target_field.attname: value})
                    pk = rows.values_list("pk", flat=True).first()
                if pk is not None:
                    yield Target(remote, pk)

    def row(self, target: Target) -> models.Model | None:
        if target not in self._read:
            self._read[target] = target.model._base_manager.using(self._using).filter(pk=target.pk).first()
        return self._read[target]


@dataclass(frozen=True, slots=True, kw_only=True)
class LockPlan:
    """The locks that a check-out of the target takes, and the database."""

    target: Target
    requests: tuple[LockRequest, ...]
    using: str

    @property
    def targets(self) -> list[Target]:
        return [request.target for request in self.requests]


def plan_for(
    what: object,
    *,
    related: Related = "references",
    depth: int | None = 1,
    shared_references: bool = False,
    using: str | None = None,
) -> LockPlan:
    """Return the plan of a check-out; options and errors are those of `check_out`."""
    if not isinstance(related, list) and related not in ("references", "none"):
        raise ValueError(f"related must be 'references', 'none' or a list of tables and records, not {related!r}")
    if depth is not None and (isinstance(depth, bool) or not isinstance(depth, int) or depth < 0):
        raise ValueError(f"depth must be None or an integer of at least 0, not {depth!r}")
    target = target_of(what)
    database = target.database(using)
    own, references = closure_of(target, depth=depth if related == "references" else 0, using=database)
    # With a list, the closure above has the record's own parts only; what is named is looked for separately.
    if isinstance(related, list):
        references = _named(own, target, names=related, using=database)
    requests = [LockRequest(target=part, status=Status.EDITING) for part in own]
    requests += [LockRequest(target=part, status=Status.LOCKED, shared=shared_references) for part in references]
    for row in (request.target for request in requests):
        if len(row.key) > LONGEST_KEY:
            raise UnknownRecord(
                f"{row.table} {row.key[:40]!r}... has a key of {len(row.key)} characters: with more than "
                f"{LONGEST_KEY} a record can only be checked out with its whole table"
            )
    return LockPlan(target=target, requests=tuple(requests), using=database)


def _named(own: Collection[Target], target: Target, *, names: list[Any], using: str) -> tuple[Target, ...]:
    """Return the named targets without the target's own. Raises `UnrelatedTarget` for unreachable ones."""
    targets = list(dict.fromkeys(map(target_of, names)))
    # Models are compared first: rows are read only where records are named.
    unrelated = _unreached(target, _unreached(Target(target.model), targets, using=using), using=using)
    if unrelated:
        raise UnrelatedTarget(f"{target.name} does not refer to {', '.join(part.name for part in unrelated)}")
    return tuple(part for part in targets if part not in own)


def _unreached(start: Target, targets: list[Target], *, using: str) -> list[Target]:
    if not targets:
        return []
    own, references = closure_of(start, depth=None, using=using)
    return [part for part in targets if part not in (*own, *references)]


def plan_of(target: Target, check_out: CheckOut, *, using: str) -> LockPlan:
    """Return the plan of an existing check-out, also if the record's foreign keys changed or it was deleted."""
    locks = EditLock.objects.using(using).filter(check_out=check_out).order_by("model", "object_pk")
    requests = tuple(
        LockRequest(target=parse_target(lock.model, lock.object_pk), status=lock.status, shared=lock.shared)
        for lock in locks
    )
    return LockPlan(target=target, requests=requests, using=using)


def lock_plan(
    target: Target, *, related: Related, depth: int | None = 1, shared_references: bool, using: str
) -> LockPlan:
    """Return the plan of a check-out, with its advisory locks taken until the transaction ends.

    Raises `ReferencesChanged` if the record's references changed before the locks were taken.
    """
    options: Any = {"related": related, "depth": depth, "shared_references": shared_references, "using": using}
    # Computed twice: the advisory locks need the targets, and only under the locks are the targets stable.
    plan = plan_for(target, **options)
    lock_for_check_out(plan.targets, using=using)
    # A record's foreign keys may have changed during the wait for the locks; a table's are fixed by its model.
    if target.pk is not None and plan_for(target, **options).targets != plan.targets:
        raise ReferencesChanged(model=target.model, pk=target.pk)
    return plan
