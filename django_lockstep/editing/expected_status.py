"""The expected-status form of the HTTP API: clients post the statuses before and after, and name what is locked along.

An adapter: it compares, and leaves the change to `check_out` and `check_in`.
"""

from __future__ import annotations

from typing import Any

from django_lockstep.editing.errors import InvalidTransition
from django_lockstep.editing.holds import live_locks, status_in
from django_lockstep.editing.models import Status
from django_lockstep.editing.operations import atomic_for, check_in, check_out, status_of
from django_lockstep.editing.ownership import owned
from django_lockstep.editing.plans import lock_plan, plan_of
from django_lockstep.editing.results import EditResult
from django_lockstep.editing.schemas import TransitionIn
from django_lockstep.editing.targets import Target

__all__ = ["transition"]


def transition(target: Target, references: list[Target], *, wanted: TransitionIn, editor: Any) -> EditResult:
    """Check the target out (``normal`` to ``editing``) or in (``editing`` to ``normal``), with the references.

    Where a status is not the expected one, nothing changes and ``lock_result`` is False. Raises `InvalidTransition` for
    other changes, for lists of different lengths and for a check-in that names other tables than were locked.
    """
    before, after = wanted.fk_current_status, wanted.fk_target_status
    if not len(references) == len(before) == len(after):
        raise InvalidTransition(f"{len(references)} fk_tables need as many statuses before and after")
    change = (wanted.current_status, wanted.target_status)
    if change == ("normal", "editing"):
        shared = {("locked", "locked")} if wanted.shared_references else set()
        _require(references, list(zip(before, after, strict=True)), allowed={("normal", "locked"), *shared})
        expected = {target: wanted.current_status, **dict(zip(references, before, strict=True))}
        return _check_out(target, references, expected=expected, wanted=wanted, editor=editor)
    if change == ("editing", "normal"):
        _require(references, list(zip(before, after, strict=True)), allowed={("locked", "normal")})
        return _check_in(target, references, token=wanted.token, editor=editor)
    raise InvalidTransition(f"{target.name} cannot go from {change[0]!r} to {change[1]!r}")


def _require(references: list[Target], changes: list[tuple[str, str]], *, allowed: set[tuple[str, str]]) -> None:
    for one, change in zip(references, changes, strict=True):
        if change not in allowed:
            raise InvalidTransition(f"{one.name} cannot go from {change[0]!r} to {change[1]!r} along with this change")


def _check_out(
    target: Target, references: list[Target], *, expected: dict[Target, str], wanted: TransitionIn, editor: Any
) -> EditResult:
    database = target.database()
    options: Any = {"related": references, "shared_references": wanted.shared_references, "using": database}
    with atomic_for(target, database):
        lock_plan(target, **options)  # nobody else is granted any of it between the comparison and the check-out
        locks = live_locks(expected, using=database)
        if any(status_in(locks, one) != status for one, status in expected.items()):
            return status_of(target, **options)
        return check_out(
            target, editor, ttl=wanted.ttl, note=wanted.note, require_token=wanted.require_token, **options
        )


def _check_in(target: Target, references: list[Target], *, token: str | None, editor: Any) -> EditResult:
    database = target.database()
    with atomic_for(target, database):
        held = plan_of(target, owned(target, editor, token=token, using=database), using=database)
        done = check_in(target, editor, token=token, using=database)
        locked = {one.target for one in held.wanted if one.status == Status.LOCKED}
        own = set(held.targets) - locked  # what the model inherits from is edited along, named or not
        if locked != set(references) - own:
            names = ", ".join(sorted(one.name for one in locked)) or "nothing"
            raise InvalidTransition(f"{target.name} was checked out with {names}")
        return done
