"""Lock plans: what a check-out takes, determined before anything is written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from django_lockstep.editing.advisory import lock_for_check_out
from django_lockstep.editing.closure import Closure, closure_of
from django_lockstep.editing.errors import ReferencesChanged, UnknownRecord, UnrelatedTarget
from django_lockstep.editing.holds import Wanted
from django_lockstep.editing.models import LONGEST_KEY, CheckOut, EditLock, Status
from django_lockstep.editing.targets import Target, parse_target, target_of

__all__ = ["LockPlan", "Related", "lock_plan", "plan_for", "plan_of"]

Related = Literal["references", "none"] | list[Any]
"""Everything over ``depth`` foreign keys, nothing, or the tables and records of a list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockPlan:
    """The locks that a check-out of the target takes, and the database."""

    target: Target
    wanted: tuple[Wanted, ...]
    using: str

    @property
    def targets(self) -> list[Target]:
        """All targets of the plan."""
        return [one.target for one in self.wanted]


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
    closure = closure_of(target, depth=depth if related == "references" else 0, using=database)
    references: Iterable[Target] = closure.references
    if isinstance(related, list):
        references = _named(closure, target, names=related, using=database)
    for one in (*closure.own, *references):
        _require_storable(one)
    wanted = [Wanted(target=own, status=Status.EDITING) for own in closure.own]
    wanted += [Wanted(target=one, status=Status.LOCKED, shared=shared_references) for one in references]
    return LockPlan(target=target, wanted=tuple(wanted), using=database)


def _require_storable(target: Target) -> None:
    if len(target.key) > LONGEST_KEY:
        raise UnknownRecord(
            f"{target.table} {target.key[:40]!r}... has a key of {len(target.key)} characters: with more than "
            f"{LONGEST_KEY} a record can only be checked out with its whole table"
        )


def _named(closure: Closure, target: Target, *, names: list[Any], using: str) -> list[Target]:
    """Return the named targets without the target's own. Raises `UnrelatedTarget` for unreachable ones."""
    named = list(dict.fromkeys(map(target_of, names)))
    # Models are compared first: rows are read only where records are named.
    unrelated = _unreached(target, _unreached(target.whole_table(), named, using=using), using=using)
    if unrelated:
        raise UnrelatedTarget(f"{target.name} does not refer to {', '.join(one.name for one in unrelated)}")
    return [one for one in named if one not in closure.own]


def _unreached(start: Target, named: list[Target], *, using: str) -> list[Target]:
    if not named:
        return []
    closure = closure_of(start, depth=None, using=using)
    return [one for one in named if one not in (*closure.own, *closure.references)]


def plan_of(target: Target, check_out: CheckOut, *, using: str) -> LockPlan:
    """Return the plan of an existing check-out, also if the record's foreign keys changed or it was deleted."""
    locks = EditLock.objects.using(using).filter(check_out=check_out).order_by("model", "object_pk")
    wanted = [
        Wanted(target=parse_target(lock.model, lock.object_pk), status=lock.status, shared=lock.shared)
        for lock in locks
    ]
    return LockPlan(target=target, wanted=tuple(wanted), using=using)


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
