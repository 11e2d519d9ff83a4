"""What a request may do, whatever its protocol: the tables that its user may see, its limits, and its refusals.

``view`` or ``change`` lets a user look at a table, ``change`` check it out. A table that the user may not see is
answered like an unknown one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from django.apps import apps
from django.contrib.auth import get_permission_codename
from django.core.exceptions import ObjectDoesNotExist, PermissionDenied
from django.db import models

from django_lockstep.editing.conf import api_max_depth, duration
from django_lockstep.editing.errors import EditingError, InvalidTransition, LimitExceeded, UnknownRecord, UnknownTable
from django_lockstep.editing.holds import checked_out, find_check_out, live_locks, status_in
from django_lockstep.editing.models import LONGEST_NOTE, Status
from django_lockstep.editing.operations import atomic_for, check_in, check_out, status_of
from django_lockstep.editing.plans import lock_plan, plan_for, plan_of
from django_lockstep.editing.results import EditResult, StatusTransition
from django_lockstep.editing.targets import Target, record, target_of
from django_lockstep.errors import ConcurrencyError
from django_lockstep.http.problems import Problem, problem_of


def target_for(user: Any, name: str, pk: str | None = None, *, change: bool = False) -> Target:
    """Return the table, or its record with this key, if the user may see it.

    Raises `UnknownTable`, `UnknownRecord`; with ``change``, ``PermissionDenied`` for a user who may only look.
    """
    try:
        table = target_of(name)
    except UnknownTable:
        table = None
    if table is None or not _sees(user, table.model):
        # One text for both, so that the existence of hidden tables is not disclosed.
        raise UnknownTable(f"There is no table {name!r}")
    if change and not _may(user, table.model, "change"):
        raise PermissionDenied(f"{table.table} may not be changed by {user}")
    if pk is None:
        return table
    target = record(table.model, pk)
    # One name for one record: "007" and "7" would be the same row with two names.
    if target.key != pk and not isinstance(target.pk, tuple):
        raise UnknownRecord(f"{pk!r} is not a primary key of {table.model._meta.label} in its canonical form")
    return target


def _sees(user: Any, model: type[models.Model]) -> bool:
    return _may(user, model, "view", "change")


def _may(user: Any, model: type[models.Model], *actions: str) -> bool:
    names = [f"{model._meta.app_label}.{get_permission_codename(action, model._meta)}" for action in actions]
    return any(user.has_perm(name) for name in names)


def run_operation(
    operation: Callable[..., EditResult], user: Any, table: str, record: str | None = None, **options: Any
) -> EditResult:
    """Run an operation on a table or a record that the user may change, within the limits of requests.

    Raises as `target_for` does; `LimitExceeded`, and ``PermissionDenied`` if it would lock tables that the user may not
    see.
    """
    target = target_for(user, table, record, change=True)
    _require_limits(options.get("ttl"), options.get("note", ""))
    if "related" in options:
        _require_visible(user, target, depth=options["depth"], related=options["related"])
    return operation(target, user, **options)


def _require_limits(ttl: float | None, note: str) -> None:
    """Raise `LimitExceeded` for more seconds than ``LOCKSTEP_EDIT_API_MAX_TTL``, or a note that cannot be stored."""
    longest = duration("LOCKSTEP_EDIT_API_MAX_TTL").total_seconds()
    if ttl is not None and not 0 < ttl <= longest:
        raise LimitExceeded(f"ttl must be greater than 0 and at most {longest:g} seconds, not {ttl:g}")
    if len(note) > LONGEST_NOTE or "\0" in note:
        raise LimitExceeded(f"note must have at most {LONGEST_NOTE} characters, and not the character NUL")


def _require_visible(user: Any, target: Target, *, depth: int | None, related: Any) -> None:
    """Raise ``PermissionDenied`` if the check-out would lock tables that the user may not see.

    `LimitExceeded` for more foreign keys than ``LOCKSTEP_EDIT_API_MAX_DEPTH``.
    """
    deepest = api_max_depth()
    if deepest is not None and (depth is None or depth > deepest):
        raise LimitExceeded(f"depth must be at most {deepest}, not {depth!r}")
    if depth is not None and depth < 0:
        raise LimitExceeded(f"depth must be at least 0, not {depth!r}")
    locks = plan_for(target, depth=depth, related=related).requests
    if not all(_sees(user, lock.target.model) for lock in locks if lock.status == Status.LOCKED):
        raise PermissionDenied(
            f"{target.table} refers to tables that the check-out would lock and that you may not see"
        )


def table_statuses(user: Any) -> list[EditResult]:
    """Return the status of every table that the user may see."""
    return [status_of(model) for model in apps.get_models() if not model._meta.proxy and _sees(user, model)]


def checked_out_by(user: Any, table: Target | None = None) -> Iterator[EditResult]:
    """Yield the status of the table's checked-out records; without one, of every visible table and record that is out.

    Deleted records are left out.
    """
    for target in checked_out(table):
        if _sees(user, target.model):
            with suppress(UnknownRecord):
                yield status_of(target)


def make_transition(user: Any, change: StatusTransition) -> EditResult:
    """Change the status of a table and of its references, if the user may and all have the expected status."""
    target = target_for(user, change.table, change.record, change=True)
    references = [target_for(user, name) for name in change.fk_tables]
    _require_limits(change.ttl, change.note)
    return transition(target, references, change=change, editor=user)


def transition(target: Target, references: list[Target], *, change: StatusTransition, editor: object) -> EditResult:
    """Check the target out (``normal`` to ``editing``) or in (``editing`` to ``normal``), with the references.

    The expected-status form of the APIs: clients send the statuses before and after, and the references to lock.

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


def refusal_of(result: EditResult) -> Problem | None:
    """Return the problem of a result that was not granted; None for a granted one."""
    if result.lock_result:
        return None
    data = result.as_json()
    if result.must_end:
        members = {**data, "holders": data["must_end"]}
        return Problem(status=423, detail=f"{result.table} is taken", members=members)
    return Problem(status=409, detail=f"{result.table} is {result.current_status}", members={"result": data})


_STATUS: tuple[tuple[type[Exception], int], ...] = (
    (LookupError, 404),
    (ObjectDoesNotExist, 404),
    (PermissionDenied, 403),
    (ValueError, 422),
)


def problem_for(error: Exception) -> Problem | None:
    """Return the problem of an error of edit locks, of permissions, or of concurrent work; None for all others."""
    if isinstance(error, (EditingError, PermissionDenied)):
        status = next((status for kind, status in _STATUS if isinstance(error, kind)), 400)
        return Problem(status=status, detail=str(error))
    problem = problem_of(error)
    if problem is None or problem.status != 409 or not isinstance(error, ConcurrencyError):
        return problem
    members = {"how": getattr(error, "how", ""), "by": getattr(error, "by", ""), "at": getattr(error, "at", None)}
    return Problem(status=409, detail=str(error), members=members)
