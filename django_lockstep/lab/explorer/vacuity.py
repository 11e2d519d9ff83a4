"""Vacuous races: code that never ran holds in every schedule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django_lockstep.errors import ConcurrencyError, sqlstate_of
from django_lockstep.lab.explorer.driver.trace import StepRecord
from django_lockstep.lab.wording import counted

__all__ = ["Activity", "Errors", "Vacuity", "activity_of"]

_CONFLICTS = ("40", "23", "55P03", "57014")
"""First characters of SQLSTATEs of conflicts with other transactions: rollbacks, constraints, NOWAIT, time-outs."""

Errors = type[BaseException] | tuple[type[BaseException], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What the actors did in one run, to tell whether anything was raced. It can be pickled."""

    active: frozenset[int]
    """Actors that sent a statement."""
    changed: bool
    """Whether one of them wrote or locked anything."""
    raised: Mapping[str, tuple[str, str]]
    """The class of each actor's error, and the error in words; without conflicts and expected errors."""


def activity_of(steps: Sequence[StepRecord], errors: Mapping[str, BaseException], *, raises: Errors) -> Activity:
    """Return what the actors did in these steps; ``raises`` are errors that are expected."""
    return Activity(
        active=frozenset(step.actor for step in steps),
        changed=any(map(_may_change, steps)),
        raised={
            name: (f"{type(error).__module__}.{type(error).__qualname__}", _in_words(error))
            for name, error in errors.items()
            # A conflict in every schedule is a result of the race; another error is more likely a mistake in the
            # scenario.
            if not (isinstance(error, raises) or _is_conflict(error))
        },
    )


class Vacuity:
    """Notes what every actor did in all runs; actors whose ``roles`` are equal are taken for one."""

    def __init__(self, names: Sequence[str], roles: Sequence[object] | None = None) -> None:
        self._names = names
        self._roles = names if roles is None else roles
        self._active: set[int] = set()
        self._changed = False
        self._ended = 0
        self._raised: dict[str, Counter[str]] = {name: Counter() for name in names}
        self._first: dict[str, tuple[str, str]] = {}

    def note(self, activity: Activity, *, ended: bool) -> None:
        """Note what was done in a run, and whether the run came to its end."""
        self._active |= activity.active
        self._changed = self._changed or activity.changed
        self._ended += ended
        for name, (kind, _) in activity.raised.items():
            self._raised[name][kind] += 1
            self._first.setdefault(name, activity.raised[name])

    @property
    def reason(self) -> str:
        """Why the race is vacuous, in a sentence; empty if it is not."""
        schedules = counted(self._ended, "schedule")
        for index, name in enumerate(self._names):
            alike = [other for other, role in enumerate(self._roles) if role == self._roles[index]]
            kind, text = self._first.get(name, ("", ""))
            if kind and all(self._raised[self._names[other]][kind] == self._ended for other in alike):
                return f"nothing was raced: {name} raised {text} in {_all(schedules)}"
            if not self._active.intersection(alike):
                return f"nothing was raced: {name} sent no statement in {_all(schedules)}"
        if not self._changed:
            return "nothing was raced: no actor wrote or locked anything"
        return ""


def _all(schedules: str) -> str:
    return "the only schedule" if schedules.startswith("1 ") else f"all {schedules}"


def _may_change(step: StepRecord) -> bool:
    statement = step.operation.statement
    return statement is None or statement.may_change


def _is_conflict(error: BaseException) -> bool:
    return isinstance(error, ConcurrencyError) or (sqlstate_of(error) or "").startswith(_CONFLICTS)


def _in_words(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}".rstrip(": ")
