"""Vacuous races: code that never ran holds in every schedule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from django_lockstep.errors import ConcurrencyError, sqlstate_of
from django_lockstep.lab.explorer.trace import StepRecord
from django_lockstep.lab.wording import counted

__all__ = ["Vacuity"]

_CONFLICTS = ("40", "23", "55P03", "57014")
"""First characters of SQLSTATEs of conflicts with other transactions: rollbacks, constraints, NOWAIT, time-outs."""

Errors = type[BaseException] | tuple[type[BaseException], ...]


class Vacuity:
    """Notes what every actor did in all runs; ``raises`` are errors that are expected."""

    def __init__(self, names: Sequence[str], *, raises: Errors = ()) -> None:
        self._names = names
        self._raises = raises
        self._active: set[int] = set()
        self._changed = False
        self._ended = 0
        self._raised: dict[str, Counter[type[BaseException]]] = {name: Counter() for name in names}
        self._first: dict[str, BaseException] = {}

    def note_steps(self, steps: Sequence[StepRecord]) -> None:
        """Note the steps of a run."""
        self._active.update(step.actor for step in steps)
        self._changed = self._changed or any(map(_may_change, steps))

    def note_end(self, errors: Mapping[str, BaseException]) -> None:
        """Note the end of a run, and the errors of its actors."""
        self._ended += 1
        for name, error in errors.items():
            # A conflict in every schedule is a result of the race; another error is more likely a mistake in the
            # scenario.
            if not (isinstance(error, self._raises) or _is_conflict(error)):
                self._raised[name][type(error)] += 1
                self._first.setdefault(name, error)

    @property
    def reason(self) -> str:
        """Why the race is vacuous, in a sentence; empty if it is not."""
        schedules = counted(self._ended, "schedule")
        for index, name in enumerate(self._names):
            error = self._first.get(name)
            if error is not None and self._raised[name][type(error)] == self._ended:
                return f"nothing was raced: {name} raised {_in_words(error)} in {_all(schedules)}"
            if index not in self._active:
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
