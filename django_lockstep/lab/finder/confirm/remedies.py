"""Remedies: what fits each kind of candidate, and what is tried against a race where it was confirmed."""

from __future__ import annotations

from django_lockstep.lab.explorer import Exploration, Run
from django_lockstep.lab.explorer.results import RunEnding
from django_lockstep.lab.finder.confirm.forks import Fork
from django_lockstep.lab.finder.confirm.patches import patches_for
from django_lockstep.lab.finder.derive.candidates import Candidate
from django_lockstep.lab.wording import counted

__all__ = ["REMEDIES", "ends_as", "try_patches"]

_LOCK = "lock the row with select_for_update() before it is read, in the transaction that writes it"
_CONDITION = "compute and check in the UPDATE itself: filter(pk=..., field__gte=n).update(field=F('field') - n)"
_VERSION = "put the version that was read into the WHERE clause of the write, and refuse or retry if no row is left"
_UNIQUE = "a unique constraint, and get_or_create() or an IntegrityError that is handled"
_FIELDS = "write only what was changed: save(update_fields=[...]), or filter(pk=...).update(...)"
_PARENT = "lock the row that the new ones belong to before they are looked for"
REMEDIES = {
    "read-modify-write": (_CONDITION, _LOCK, _VERSION),
    "check-then-act": (_CONDITION, _LOCK, _VERSION),
    "check-then-insert": (_UNIQUE, _PARENT),
    "whole-row-write": (_FIELDS, _LOCK, _VERSION),
    "deleted-row-write": (_FIELDS, _LOCK),
    "write-skew": (_PARENT, "SERIALIZABLE transactions, retried when the server refuses one"),
    "lock-order": ("lock several rows in one order everywhere, such as that of their primary keys",),
    "late-lock": (_LOCK,),
    "effect-before-commit": ("transaction.on_commit()",),
}
"""What fits each kind of candidate, the first choice first."""

# Half of what a fork may take, as there may be several changes to try.
_SECONDS = 10.0


def _right_schedules(candidate: Candidate, fork: Fork, exploration: Exploration) -> int:
    """Explore the fork with a remedy; return its schedules if all end right, and one as without the remedy; else 0."""
    tried = fork.explore(seconds=_SECONDS, tables=(candidate.table,), stop=True, before=exploration)
    # Code that a change has broken ends in the same error in every order.
    works = any(ends_as(end, exploration) for end in tried.outcomes)
    # Vacuous: one of the two may be refused in every schedule.
    return tried.schedules if works and tried.verdict in {"nothing found", "vacuous"} else 0


def ends_as(end: RunEnding, exploration: Exploration) -> bool:
    """Whether a right outcome of the exploration is this end."""
    ends = [(right.state, right.results, right.errors) for right in exploration.outcomes if right.holds]
    return (end.state, end.results, end.errors) in ends


def try_patches(candidate: Candidate, run: Run, fork: Fork, *, exploration: Exploration) -> tuple[str, str]:
    """Explore the fork with each change of the code that may help; return the first one's diff, and what it does."""
    reads = (step.transaction for step in run.steps if candidate.read and step.source == str(candidate.read.site))
    for patch in patches_for(candidate, in_transaction=next(reads, None) is not None):
        # Several candidates of one request may ask for the same change.
        key = candidate.table, patch.diff
        if key not in fork.remedies:
            with patch.applied() as is_applied:
                fork.remedies[key] = _right_schedules(candidate, fork, exploration) if is_applied else 0
        if schedules := fork.remedies[key]:
            return patch.diff, f"with this change {counted(schedules, 'schedule')} end as serial orders do"
    return "", ""
