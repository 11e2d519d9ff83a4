"""Units of work while they are recorded."""

from __future__ import annotations

import gc
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from traceback import walk_stack
from types import FrameType

from django_lockstep.lab.finder.record.recording import SENT_MAIL, RecordedStatement, Unit

__all__ = ["Calls", "Draft"]

_MATTERS = re.compile(
    rf"\s*(?:INSERT|UPDATE|DELETE|MERGE|LOCK)\b|{SENT_MAIL}|\bFOR\s+(?:NO\s+KEY\s+)?(?:UPDATE|SHARE)\b|"
    r"\s*WITH\b.*\b(?:INSERT|UPDATE|DELETE)\b",
    re.IGNORECASE | re.DOTALL,
)
"""What writes or locks; a word that is found in a string only keeps a unit that could be left out."""
# More are sent by loops, whose first rounds tell as much.
_MOST_STATEMENTS = 1000
_MOST_CALLS = 20
"""Units of one function that are kept of one test: some tests call one thousands of times."""


@dataclass(slots=True)
class Draft:
    """A unit that goes on."""

    test: str
    kind: str
    number: int
    name: str = ""
    inputs: set[str] = field(default_factory=set)
    statements: list[RecordedStatement] = field(default_factory=list)
    keys: dict[str, int | str] = field(default_factory=dict)
    """The primary keys that it read, by fingerprint."""
    transactions: dict[tuple[str, int], int] = field(default_factory=dict)
    """Its numbers of transactions, by alias and the number of the process."""

    @property
    def is_full(self) -> bool:
        return len(self.statements) >= _MOST_STATEMENTS

    def transaction(self, alias: str, number: int | None) -> int | None:
        """Return the unit's own number of a transaction."""
        return None if number is None else self.transactions.setdefault((alias, number), len(self.transactions))

    def finish(self) -> Unit | None:
        """Return the unit; None if it has no name, or nothing was written or locked in it."""
        if not self.name or not any(_MATTERS.search(statement.sql) for statement in self.statements):
            return None
        # Numbers before texts: the two cannot be compared.
        order = sorted(self.keys, key=lambda known: (isinstance(self.keys[known], str), self.keys[known]))
        return Unit(
            test=self.test,
            kind=self.kind,
            name=self.name,
            number=self.number,
            inputs=frozenset(self.inputs),
            statements=tuple(self.statements),
            key_order=tuple(order),
        )


@dataclass(slots=True)
class _OpenCall:
    frame: FrameType | None
    """Kept, so that no later call gets the same address; it is let go with the next call, or the test's end.

    With it all that the call had is kept, so that it is also let go before unreachable objects are collected: tests
    that look for leaks collect them. Then it is None.
    """
    draft: Draft | None
    """None where enough calls of the function are known."""


class Calls:
    """The calls of the project's functions that a test makes itself, one at a time in each thread."""

    def __init__(self, *, begin: Callable[[FrameType, int], Draft], end: Callable[[Draft], None]) -> None:
        self._begin = begin
        self._end = end
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._open: dict[int, _OpenCall] = {}

    def draft(self, frame: FrameType) -> Draft | None:
        """Return the draft of the call that the frame is of."""
        thread = threading.get_ident()
        known = self._open.get(thread)
        if known is None or known.frame is not frame:
            if known is not None:
                self._finish(known)
            known = self._open[thread] = self._opened(frame)
        return known.draft

    @contextmanager
    def letting_go(self) -> Iterator[None]:
        """Let calls that have returned go whenever objects are collected."""
        gc.callbacks.append(self._before_collection)
        try:
            yield
        finally:
            gc.callbacks.remove(self._before_collection)

    def _before_collection(self, phase: str, info: dict[str, int]) -> None:
        # Of young objects too often to walk the stacks, and nobody waits for that.
        if phase != "start" or info["generation"] < 2:
            return
        stacks = sys._current_frames()
        # Nothing is written here: a collection may begin anywhere, also while a lock of the recorder is held.
        for thread, call in list(self._open.items()):
            stack = walk_stack(stacks[thread]) if thread in stacks else ()
            if not any(frame is call.frame for frame, _ in stack):
                call.frame = None

    def finish_all(self) -> None:
        """End the calls of a test that is over."""
        while self._open:
            self._finish(self._open.popitem()[1])
        self._counts.clear()

    def _opened(self, frame: FrameType) -> _OpenCall:
        key = (str(frame.f_globals.get("__name__")), frame.f_code.co_qualname)
        with self._lock:
            number = self._counts[key]
            self._counts[key] += 1
        return _OpenCall(frame, self._begin(frame, number) if number < _MOST_CALLS else None)

    def _finish(self, call: _OpenCall) -> None:
        if call.draft is not None:
            self._end(call.draft)
