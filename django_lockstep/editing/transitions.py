"""The expected-status form, for clients that drive the transition themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

from django_lockstep.editing.closure import closure_of
from django_lockstep.editing.conf import time_to_live
from django_lockstep.editing.errors import InvalidTransition
from django_lockstep.editing.guards import guard_check_out
from django_lockstep.editing.holds import Wanted, live_locks, status_in
from django_lockstep.editing.models import Status
from django_lockstep.editing.operations import check_in, described, obtain, whole
from django_lockstep.editing.ownership import owned, require_person
from django_lockstep.editing.plans import Plan, plan_for, plan_of
from django_lockstep.editing.results import EditResult
from django_lockstep.editing.targets import Target, target_of
from django_lockstep.locking.durations import Duration

__all__ = ["transition"]

Statuses = str | Sequence[str]
"""One status for each of the tables, or one for all of them."""

_OPENS = ("normal", "editing")
_CLOSES = ("editing", "normal")


def transition(
    table: Any,
    current_status: str,
    target_status: str,
    fk_tables: Iterable[Any] = (),
    fk_current_status: Statuses = "normal",
    fk_target_status: Statuses = "locked",
    editor: Any = None,
    *,
    token: str | None = None,
    ttl: Duration | None = None,
    shared_references: bool = False,
    note: str = "",
    using: str | None = None,
) -> EditResult:
    """Change the status of a table and of the tables it refers to, if all of them are what the caller expects.

    ``normal`` to ``editing`` checks out, with the ``fk_tables`` going from ``normal`` to ``locked`` (also from
    ``locked`` where references are shared). ``editing`` to ``normal`` checks in, with the ``fk_tables`` going from
    ``locked`` to ``normal``; these have to be the ones that were taken. Tables may be records. One transaction: all
    change or none.

    The ``fk_tables`` are some of those that the foreign keys lead to, however many in a row; of a record, records that
    its own lead to or whole tables. What the model inherits from is edited along, named or not.

    A status that is not the expected one is a result with ``lock_result`` False and the statuses as they are. Raises
    `InvalidTransition` for any other change of statuses, for lists of different lengths and for what the table does not
    refer to, and as `check_out` and `check_in` do.
    """
    target, change = target_of(table), (current_status, target_status)
    database = target.database(using)
    references = _expected(list(map(target_of, fk_tables)), fk_current_status, fk_target_status)
    if change == _OPENS:
        _require(references, {("normal", "locked"), *([("locked", "locked")] if shared_references else [])})
        require_person(editor)
        planned = partial(_plan, target, list(references), shared=shared_references, using=database)
        expected = {target: current_status, **{one: before for one, (before, _) in references.items()}}
        return _opened(planned, expected, editor, ttl=time_to_live(ttl), note=note)
    if change == _CLOSES:
        _require(references, {("locked", "normal")})
        return _closed(target, set(references), editor, token=token, using=database)
    raise InvalidTransition(f"{target.name} cannot go from {current_status!r} to {target_status!r}")


def _expected(tables: list[Target], before: Statuses, after: Statuses) -> dict[Target, tuple[str, str]]:
    """Return what each table is expected to be, and what it is to become."""
    columns = [[status] * len(tables) if isinstance(status, str) else list(status) for status in (before, after)]
    if any(len(column) != len(tables) for column in columns):
        raise InvalidTransition(f"{len(tables)} fk_tables need as many statuses before and after")
    return dict(zip(tables, zip(*columns, strict=True), strict=True)) if tables else {}


def _require(references: dict[Target, tuple[str, str]], allowed: set[tuple[str, str]]) -> None:
    for one, (before, after) in references.items():
        if (before, after) not in allowed:
            raise InvalidTransition(f"{one.name} cannot go from {before!r} to {after!r} along with this change")


def _plan(target: Target, references: Iterable[Target], *, shared: bool, using: str) -> Plan:
    """Return what is to be taken. Raises `InvalidTransition` for what the target does not refer to."""
    strangers = _strangers(target, _strangers(target.whole_table(), references, using=using), using=using)
    if strangers:
        raise InvalidTransition(f"{target.name} does not refer to {', '.join(one.name for one in strangers)}")
    own = plan_for(target, related="none", using=using)
    locked = (one for one in references if one not in own.targets)
    return replace(
        own, wanted=(*own.wanted, *(Wanted(target=one, status=Status.LOCKED, shared=shared) for one in locked))
    )


def _strangers(start: Target, named: Iterable[Target], *, using: str) -> list[Target]:
    """Return those of the named that neither belong to the start nor are reached from it."""
    named = list(named)
    if not named:
        return []  # and no row has to be read
    closure = closure_of(start, depth=None, using=using)
    return [one for one in named if one not in (*closure.own, *closure.references)]


def _as_expected(expected: dict[Target, str], *, using: str) -> bool:
    locks = live_locks(expected, using=using)
    return all(status_in(locks, target) == status for target, status in expected.items())


def _opened(
    planned: Callable[[], Plan], expected: dict[Target, str], editor: Any, *, ttl: timedelta, note: str
) -> EditResult:
    """Check out if all statuses are the expected ones."""
    plan = planned()
    with whole(plan.target, plan.using):
        guard_check_out(plan.targets, using=plan.using)
        if plan.target.pk is not None:
            planned()  # its foreign keys may have changed before the guard was there
        if not _as_expected(expected, using=plan.using):
            return described(plan, mine=None, lock_result=False)
        return obtain(plan, editor, ttl=ttl, note=note)


def _closed(target: Target, references: set[Target], editor: Any, *, token: str | None, using: str) -> EditResult:
    """Check in if the caller knows what was taken."""
    with whole(target, using):
        held = plan_of(target, owned(target, editor, token=token, using=using), using=using)
        done = check_in(target, editor, token=token, using=using)
        taken = {one.target for one in held.wanted if one.status == Status.LOCKED}
        if taken != references - (set(held.targets) - taken):
            names = ", ".join(sorted(one.name for one in taken)) or "nothing"
            raise InvalidTransition(f"{target.name} was checked out with {names}")
        return done
