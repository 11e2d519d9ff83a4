"""Converts a run's steps and errors to results, with secrets masked."""

from __future__ import annotations

import functools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django_lockstep.lab import conf
from django_lockstep.lab.explorer.driver.trace import StepRecord, Trace
from django_lockstep.lab.explorer.effects.footprints import LOCAL, Footprint, dependent, lock, touch
from django_lockstep.lab.explorer.effects.operations import Operation, line_of, raised_at
from django_lockstep.lab.explorer.effects.statement_text import columns_of
from django_lockstep.lab.explorer.effects.statements import Statement
from django_lockstep.lab.explorer.oracle import error_name
from django_lockstep.lab.explorer.results import Raised, Step
from django_lockstep.lab.explorer.tables.final_state import FinalState
from django_lockstep.lab.wording import Sentence


def build_raised(errors: Mapping[str, BaseException], masker: Masker) -> dict[str, Raised]:
    """Return what actors raised, with the first line of each message."""
    return {
        name: Raised(
            type=type(error).__name__,
            message=masker.mask(str(error).strip().partition("\n")[0]),
            source=line_of(raised_at(error)),
        )
        for name, error in errors.items()
    }


def build_steps(trace: Trace, names: tuple[str, ...], masker: Masker) -> tuple[Step, ...]:
    """Return every statement; a secret that one of them sent or read is masked in all."""
    for step in trace.steps:
        _note_secrets(step.operation, masker)
    blocks: dict[tuple[int, str], int] = {}
    counts: Counter[int] = Counter()
    shared = _shared_steps(trace.steps)
    steps = []
    for step in trace.steps:
        operation = step.operation
        connection = (step.actor, operation.alias)
        if connection not in blocks and (operation.in_transaction or not operation.ends_idle):
            blocks[connection] = counts[step.actor]
            counts[step.actor] += 1
        transaction = blocks.get(connection)
        if operation.ends_idle:
            blocks.pop(connection, None)
        built = Step(
            actor=names[step.actor],
            begun=step.number,
            ended=len(trace.moves) - 1 if step.ended is None else step.ended,
            sql=masker.mask(operation.template),
            params="" if operation.params in (None, (), []) else masker.mask(str(operation.params)),
            arguments=tuple(map(masker.mask, operation.arguments)),
            transaction=transaction,
            waited_for=tuple(names[index] for index in step.waited_for),
            waited_on=masker.mask(step.waited_on),
            woken_by=None if step.woken_by is None else names[step.woken_by],
            sqlstate=None if operation.error is None else error_name(operation.error),
            rows=operation.rows,
            values=tuple(map(masker.mask_row, operation.values)),
            source=line_of(operation.origin),
            constraint=operation.constraint,
            shared=step.number in shared,
        )
        steps.append(built)
    return tuple(steps)


def _note_secrets(operation: Operation, masker: Masker) -> None:
    for row in operation.values:
        for column, value in row.items():
            masker.note(column, [value])
    sets = operation.params if operation.many else [operation.params]
    for params in sets or ():
        texts = [str(value) for value in params] if isinstance(params, list | tuple) else []
        for column, values in columns_of(operation.template, tuple(texts)):
            masker.note(column, values)


def _shared_steps(steps: Sequence[StepRecord]) -> set[int]:
    """Return the numbers of the steps that concern another actor; not understood ones are among them."""
    touched = {step.number: _touched(step.operation.statement) for step in steps}
    by_actor: defaultdict[int, set[Footprint]] = defaultdict(set)
    for step in steps:
        by_actor[step.actor].add(touched[step.number] or LOCAL)

    @functools.cache  # many steps touch the same
    def concerns_another(actor: int, own: Footprint | None) -> bool:
        others = (footprints for index, footprints in by_actor.items() if index != actor)
        return own is None or any(dependent(own, index) for footprints in others for index in footprints)

    return {step.number for step in steps if concerns_another(step.actor, touched[step.number])}


def _touched(statement: Statement | None) -> Footprint | None:
    """Return what a statement touches by itself; None for ends of transactions, and for what is not understood."""
    if statement is None or statement.kind in {"UNKNOWN", "COMMIT", "ROLLBACK", "ROLLBACK TO"}:
        return None
    return touch("read", statement.reads) | lock("lock", statement.locks) | touch("publish", statement.writes)


# Secrets: values of columns named like passwords and tokens are masked before anything is reported.

_MASK = "***"
_SECRET = re.compile(r"passw|pwd|secret|token|(?:api|auth|access|private|session|signing)_?key", re.IGNORECASE)
_FEW_DIGITS = re.compile(r"-?\d{0,5}")
"""A counter, such as the fencing token of a lease, is not a secret; nor is the empty string."""
_TOKEN = 20
"""Length from which on a value in a column called ``key`` is a secret."""
_LONG = 6
"""Length from which on a secret is also masked inside other texts."""


class Masker:
    """Masks the secrets of one run: values of secret columns, and the same values everywhere else.

    Each has a number: what is told of a run rests on which values are equal.
    """

    def __init__(self) -> None:
        self._own = tuple(conf.secrets())
        self._known: dict[str, str] = {}
        """What stands for each."""

    def note(self, column: str, values: Iterable[Any]) -> None:
        """Remember these values of a column if they are secret."""
        texts = [
            value
            for value in values
            if isinstance(value, str)
            and not (_FEW_DIGITS.fullmatch(value) or value in {"NULL", "DEFAULT", "True", "False"})
        ]
        is_secret = column in self._own or _SECRET.search(column)
        for text in texts:
            # Of an API token, or of something with a short name.
            if is_secret or (column == "key" and len(text) >= _TOKEN):
                self._known.setdefault(text, f"{_MASK}{len(self._known) + 1}")

    def mask(self, text: str) -> str:
        """Return the text with its secrets masked."""
        if isinstance(text, Sentence):
            return text.with_values(self.mask)
        if text in self._known:
            return self._known[text]
        # Longer ones first: a secret may contain another one.
        for secret in sorted(self._known, key=len, reverse=True):
            if len(secret) >= _LONG:
                text = text.replace(secret, self._known[secret])
        return text

    def mask_row(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return a row with the secrets in its texts masked."""
        return {name: self.mask(value) if isinstance(value, str) else value for name, value in row.items()}

    def mask_state(self, state: FinalState) -> FinalState:
        """Return the final state with its secrets masked."""
        if isinstance(state, str):
            return self.mask(state)
        for rows in state.values():
            for row in rows:
                for name, value in row.items():
                    self.note(name, [value])
        return {table: list(map(self.mask_row, rows)) for table, rows in state.items()}
