"""What an operation is about to take, worked out before anything is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from django_lockstep.editing.closure import closure_of
from django_lockstep.editing.errors import ReferencesChanged
from django_lockstep.editing.guards import guard_check_out
from django_lockstep.editing.holds import Wanted
from django_lockstep.editing.models import CheckOut, EditLock, Status
from django_lockstep.editing.targets import Target, restored, target_of

__all__ = ["Plan", "Related", "plan_for", "plan_of", "settled"]

Related = Literal["references", "none"]


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
    related: str = "references",
    depth: int | None = 1,
    shared_references: bool = False,
    using: str | None = None,
) -> Plan:
    """Work out what a check-out takes; options and errors are those of `check_out`."""
    if related not in ("references", "none"):
        raise ValueError(f"related is 'references' or 'none', not {related!r}")
    if depth is not None and (isinstance(depth, bool) or not isinstance(depth, int) or depth < 0):
        raise ValueError(f"depth must be None or a whole number of at least 0, not {depth!r}")
    target = target_of(what)
    database = target.database(using)
    closure = closure_of(target, depth=depth if related == "references" else 0, using=database)
    wanted = [Wanted(target=own, status=Status.EDITING) for own in closure.own]
    wanted += [Wanted(target=one, status=Status.LOCKED, shared=shared_references) for one in closure.references]
    return Plan(target=target, wanted=tuple(wanted), using=database)


def plan_of(target: Target, check_out: CheckOut, *, using: str) -> Plan:
    """Return what the check-out has, also where the record's foreign keys changed or it is gone."""
    locks = EditLock.objects.using(using).filter(check_out=check_out).order_by("model", "object_pk")
    wanted = [
        Wanted(target=restored(lock.model, lock.object_pk), status=lock.status, shared=lock.shared) for lock in locks
    ]
    return Plan(target=target, wanted=tuple(wanted), using=using)


def settled(plan: Plan, *, related: str, depth: int | None) -> None:
    """Guard what is planned. Raises `ReferencesChanged` where it is no longer what has to be taken."""
    guard_check_out(plan.targets, using=plan.using)
    if plan.target.pk is None:
        return
    again = plan_for(plan.target, related=related, depth=depth, using=plan.using)
    if again.targets != plan.targets:
        raise ReferencesChanged(model=plan.target.model, pk=plan.target.pk)
