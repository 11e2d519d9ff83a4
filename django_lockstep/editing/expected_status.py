"""The expected-status form of the APIs: clients send the statuses before and after, and the references to lock.

An adapter: it compares the statuses and calls `check_out` or `check_in`.
"""

from __future__ import annotations

from typing import Any

from django_lockstep.editing.errors import InvalidTransition
from django_lockstep.editing.holds import find_check_out, live_locks, status_in
from django_lockstep.editing.models import Status
from django_lockstep.editing.operations import atomic_for, check_in, check_out, status_of
from django_lockstep.editing.plans import lock_plan, plan_of
from django_lockstep.editing.results import EditResult, StatusTransition
from django_lockstep.editing.targets import Target


def transition(target: Target, references: list[Target], *, change: StatusTransition, editor: object) -> EditResult:
    """Check the target out (``normal`` to ``editing``) or in (``editing`` to ``normal``), with the references.

    If a status is not the expected one, nothing changes and ``lock_result`` is False. Raises `InvalidTransition` for
    other changes, for lists of different lengths and for a check-in that names other tables than those locked.
    """
    before, after = change.fk_current_status, change.fk_target_status
    if not len(references) == len(before) == len(after):
        raise InvalidTransition(f"{len(references)} fk_tables need as many fk_current_status and fk_target_status")
    match (change.current_status, change.target_status):
        case ("normal", "editing"):
            allowed = {("normal", "locked")} | ({("locked", "locked")} if change.shared_references else set())
        case ("editing", "normal"):
            allowed = {("locked", "normal")}
        case (status, new_status):
            raise InvalidTransition(f"{target.name} cannot go from {status!r} to {new_status!r}")
    for reference, status, new_status in zip(references, before, after, strict=True):
        if (status, new_status) not in allowed:
            raise InvalidTransition(f"{reference.name} cannot go from {status!r} to {new_status!r} with {target.name}")
    if change.target_status == "normal":
        return _check_in(target, references, token=change.token, editor=editor)
    expected = {target: change.current_status, **dict(zip(references, before, strict=True))}
    return _check_out(target, references, expected=expected, change=change, editor=editor)


def _check_out(
    target: Target, references: list[Target], *, expected: dict[Target, str], change: StatusTransition, editor: object
) -> EditResult:
    database = target.database()
    options: Any = {"related": references, "shared_references": change.shared_references, "using": database}
    with atomic_for(target, database):
        lock_plan(target, **options)  # keeps other check-outs out between the comparison and ours
        locks = live_locks(expected, using=database)
        if any(status_in(locks, part) != status for part, status in expected.items()):
            return status_of(target, **options)
        return check_out(
            target, editor, ttl=change.ttl, note=change.note, require_token=change.require_token, **options
        )


def _check_in(target: Target, references: list[Target], *, token: str | None, editor: object) -> EditResult:
    database = target.database()
    with atomic_for(target, database):
        plan = plan_of(target, find_check_out(target, editor, token=token, using=database), using=database)
        result = check_in(target, editor, token=token, using=database)
        locked = {request.target for request in plan.requests if request.status == Status.LOCKED}
        own = set(plan.targets) - locked  # parents' rows belong to the target, named or not
        if locked != set(references) - own:
            names = ", ".join(sorted(reference.name for reference in locked)) or "nothing"
            raise InvalidTransition(f"{target.name} was checked out with {names}")
        return result
