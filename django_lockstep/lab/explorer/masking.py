"""Secrets: values of columns named like passwords and tokens are masked before anything is reported."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from django_lockstep.lab import conf
from django_lockstep.lab.explorer.tables.final_state import FinalState

__all__ = ["MASK", "Masker"]

MASK = "***"
_SECRET = re.compile(r"passw|pwd|secret|token|(?:api|auth|access|private|session|signing)_?key", re.IGNORECASE)
_FEW_DIGITS = re.compile(r"-?\d{0,5}")
"""A counter, such as the fencing token of a lease, is not a secret; nor is the empty string."""
_TOKEN = 20
"""Length from which on a value in a column called ``key`` is a secret."""
_LONG = 6
"""Length from which on a secret is also masked inside other texts."""


class Masker:
    """Masks the secrets of one run: values of secret columns, and the same values everywhere else."""

    def __init__(self) -> None:
        self._own = tuple(conf.secrets())
        self._known: set[str] = set()

    def is_secret(self, column: str) -> bool:
        """Whether the column's name says that it holds a secret."""
        return column in self._own or bool(_SECRET.search(column))

    def note(self, column: str, values: Iterable[Any]) -> None:
        """Remember these values of a column if they are secret."""
        texts = [value for value in values if isinstance(value, str) and not self._is_open(value)]
        if self.is_secret(column):
            self._known.update(texts)
        elif column == "key":  # of an API token, or of something with a short name
            self._known.update(text for text in texts if len(text) >= _TOKEN)

    @staticmethod
    def _is_open(value: str) -> bool:
        return bool(_FEW_DIGITS.fullmatch(value)) or value in {"NULL", "DEFAULT", "True", "False"}

    def mask(self, text: str) -> str:
        """Return the text with its secrets masked."""
        if text in self._known:
            return MASK
        # Longer ones first: a secret may contain another one.
        for secret in sorted(self._known, key=len, reverse=True):
            if len(secret) >= _LONG:
                text = text.replace(secret, MASK)
        return text

    def mask_row(self, row: Mapping[str, str | None]) -> dict[str, str | None]:
        """Return a row that was read, with its secrets masked."""
        return {name: None if value is None else self.mask(value) for name, value in row.items()}

    def mask_state(self, state: FinalState) -> FinalState:
        """Return the final state with its secrets masked."""
        if isinstance(state, str):
            return self.mask(state)
        for rows in state.values():
            for row in rows:
                for name, value in row.items():
                    self.note(name, [value])
        return {table: [self._values(row) for row in rows] for table, rows in state.items()}

    def _values(self, row: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self.mask(value) if isinstance(value, str) else value for name, value in row.items()}
