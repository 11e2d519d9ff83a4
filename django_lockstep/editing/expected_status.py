"""The expected-status form of the APIs: clients send the statuses before and after, and the references to lock.

An adapter: it compares the statuses and calls `check_out` or `check_in`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django_lockstep.editing.errors import InvalidTransition
from django_lockstep.editing.holds import find_check_out, live_locks, status_in
from django_lockstep.editing.models import Status
from django_lockstep.editing.operations import atomic_for, check_in, check_out, status_of
from django_lockstep.editing.plans import lock_plan, plan_of
from django_lockstep.editing.results import EditResult
from django_lockstep.editing.targets import Target

__all__ = ["StatusTransition", "transition"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusTransition:
    """The expected statuses and the target statuses, by the names of a request."""

    table: str
    current_status: str
    target_status: str
    record: str | None = None
    fk_tables: Sequence[str] = ()
    fk_current_status: Sequence[str] = ()
    """One for each of ``fk_tables``, and so is ``fk_target_status``."""
    fk_target_status: Sequence[str] = ()
    token: str | None = None
    ttl: float | None = None
    shared_references: bool = False
    require_token: bool = False
    note: str = ""


def transition(target: Target, references: list[Target], *, wanted: StatusTransition, editor: object) -> EditResult:
    """Check the target out (``normal`` to ``editing``) or in (``editing`` to ``normal``), with the references.

    If a status is not the expected one, nothing changes and ``lock_result`` is False. Raises `InvalidTransition` for
    other changes, for lists of different lengths and for a check-in that names other tables than those locked.
    """
    before, after = wanted.fk_current_status, wanted.fk_target_status
    if not len(references) == len(before) == len(after):
        raise InvalidTransition(f"{len(references)} fk_tables need as many fk_current_status and fk_target_status")
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
    target: Target, references: list[Target], *, expected: dict[Target, str], wanted: StatusTransition, editor: object
) -> EditResult:
    database = target.database()
    options: Any = {"related": references, "shared_references": wanted.shared_references, "using": database}
    with atomic_for(target, database):
        lock_plan(target, **options)  # keeps other check-outs out between the comparison and ours
        locks = live_locks(expected, using=database)
        if any(status_in(locks, one) != status for one, status in expected.items()):
            return status_of(target, **options)
        return check_out(
            target, editor, ttl=wanted.ttl, note=wanted.note, require_token=wanted.require_token, **options
        )


def _check_in(target: Target, references: list[Target], *, token: str | None, editor: object) -> EditResult:
    database = target.database()
    with atomic_for(target, database):
        held = plan_of(target, find_check_out(target, editor, token=token, using=database), using=database)
        done = check_in(target, editor, token=token, using=database)
        locked = {one.target for one in held.wanted if one.status == Status.LOCKED}
        own = set(held.targets) - locked  # parents' rows belong to the target, named or not
        if locked != set(references) - own:
            names = ", ".join(sorted(one.name for one in locked)) or "nothing"
            raise InvalidTransition(f"{target.name} was checked out with {names}")
        return done
