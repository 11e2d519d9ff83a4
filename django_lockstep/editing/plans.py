"""What an operation is about to take, worked out before anything is written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from django_lockstep.editing.closure import Closure, closure_of
from django_lockstep.editing.errors import ReferencesChanged, UnknownRecord, UnrelatedTarget
from django_lockstep.editing.guards import guard_check_out
from django_lockstep.editing.holds import Wanted
from django_lockstep.editing.models import LONGEST_KEY, CheckOut, EditLock, Status
from django_lockstep.editing.targets import Target, restored, target_of

__all__ = ["Plan", "Related", "lock_plan", "plan_for", "plan_of"]

Related = Literal["references", "none"] | list[Any]
"""Everything over ``depth`` foreign keys, nothing, or the tables and records of a list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a check-out of the target takes, on which database."""

    target: Target
    wanted: tuple[Wanted, ...]
    using: str

    @property
    def targets(self) -> list[Target]:
        """Everything that is taken."""
        return [one.target for one in self.wanted]


def plan_for(
    what: Any,
    *,
    related: Related = "references",
    depth: int | None = 1,
    shared_references: bool = False,
    using: str | None = None,
) -> Plan:
    """Work out what a check-out takes; options and errors are those of `check_out`."""
    if not isinstance(related, list) and related not in ("references", "none"):
        raise ValueError(f"related must be 'references', 'none' or a list of tables and records, not {related!r}")
    if depth is not None and (isinstance(depth, bool) or not isinstance(depth, int) or depth < 0):
        raise ValueError(f"depth must be None or a whole number of at least 0, not {depth!r}")
    target = target_of(what)
    database = target.database(using)
    closure = closure_of(target, depth=depth if related == "references" else 0, using=database)
    references: Iterable[Target] = closure.references
    if isinstance(related, list):
        references = _named(closure, target, names=related, using=database)
    for one in (*closure.own, *references):
        _require_storable(one)
    wanted = [Wanted(target=own, status=Status.EDITING) for own in closure.own]
    wanted += [Wanted(target=one, status=Status.LOCKED, shared=shared_references) for one in references]
    return Plan(target=target, wanted=tuple(wanted), using=database)


def _require_storable(target: Target) -> None:
    if len(target.key) > LONGEST_KEY:
        raise UnknownRecord(
            f"{target.table} {target.key[:40]!r}... has a key of {len(target.key)} characters: one with more than "
            f"{LONGEST_KEY} can only be checked out with its whole table"
        )


def _named(closure: Closure, target: Target, *, names: list[Any], using: str) -> list[Target]:
    """Return the named targets without the target's own. Raises `UnrelatedTarget` for what it does not refer to."""
    named = list(dict.fromkeys(map(target_of, names)))
    # The models are asked first: rows are read only where records are named.
    unrelated = _unreached(target, _unreached(target.whole_table(), named, using=using), using=using)
    if unrelated:
        raise UnrelatedTarget(f"{target.name} does not refer to {', '.join(one.name for one in unrelated)}")
    return [one for one in named if one not in closure.own]


def _unreached(start: Target, named: list[Target], *, using: str) -> list[Target]:
    if not named:
        return []
    closure = closure_of(start, depth=None, using=using)
    return [one for one in named if one not in (*closure.own, *closure.references)]


def plan_of(target: Target, check_out: CheckOut, *, using: str) -> Plan:
    """Return what the check-out has, also where the record's foreign keys changed or it is gone."""
    locks = EditLock.objects.using(using).filter(check_out=check_out).order_by("model", "object_pk")
    wanted = [
        Wanted(target=restored(lock.model, lock.object_pk), status=lock.status, shared=lock.shared) for lock in locks
    ]
    return Plan(target=target, wanted=tuple(wanted), using=using)


def lock_plan(target: Target, *, related: Related, depth: int | None = 1, shared_references: bool, using: str) -> Plan:
    """Work out what a check-out takes, and guard it until the transaction ends.

    Raises `ReferencesChanged` where the record refers to something else once the guards are taken.
    """
    options: Any = {"related": related, "depth": depth, "shared_references": shared_references, "using": using}
    plan = plan_for(target, **options)
    guard_check_out(plan.targets, using=using)
    # A record's foreign keys may have changed while the guards were waited for; those of a table are its model's.
    if target.pk is not None and plan_for(target, **options).targets != plan.targets:
        raise ReferencesChanged(model=target.model, pk=target.pk)
    return plan
