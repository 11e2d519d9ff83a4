"""The anomalies, each as a small race on two rows, x = 10 and y = 20.

Names and definitions: A. Adya, "Weak Consistency: A Generalized Theory and Optimistic Implementations for Distributed
Transactions", PhD thesis, MIT, 1999 (G0 to G2); P. Bailis et al., "Highly Available Transactions: Virtues and
Limitations", VLDB 2014 (OTV, PMP); H. Berenson et al., "A Critique of ANSI SQL Isolation Levels", SIGMOD 1995 (P4).

Only what committed transactions saw and wrote counts. The last digit of a value is its writer: 0 none, 1 A, 2 B.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from django_lockstep.lab.anomalies.access_patterns import AccessPattern
from django_lockstep.lab.anomalies.scratch_table import X, Y

__all__ = ["ANOMALIES", "Anomaly", "Observation", "RolledBack"]

Program = Callable[[AccessPattern], Any]


class RolledBack(Exception):
    """Rolls back a transaction on purpose."""


@dataclass(slots=True)
class Observation:
    """What one run has shown."""

    seen: dict[str, Any] = field(default_factory=dict)
    """What each committed transaction saw, by its actor's name."""
    end: dict[int, int] = field(default_factory=dict)
    """The committed values at the end, by primary key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly:
    """One anomaly: the transactions, and when a run shows it."""

    name: str
    """The short name in the literature."""
    title: str
    """The name in words."""
    text: str
    """What happens, in a sentence."""
    programs: tuple[Program, ...]
    """The transactions of the actors A, B and so on."""
    shown_by: Callable[[Observation], bool]
    """Returns whether the run shows it."""


def write_both(writer: int) -> Program:
    """Return a transaction that writes x, then y, with this digit as the writer."""

    def program(pattern: AccessPattern) -> None:
        pattern.overwrite(X, 10 + writer)
        pattern.overwrite(Y, 20 + writer)

    return program


def read_rows(*pks: int) -> Program:
    """Return a transaction that reads these rows one after the other."""
    return lambda pattern: tuple(pattern.read(pk) for pk in pks)


def write_and_roll_back(pattern: AccessPattern) -> None:
    pattern.overwrite(X, 11)
    # By an exception, because that is how a block of transaction.atomic() is rolled back.
    raise RolledBack


def write_twice(pattern: AccessPattern) -> None:
    """Write x twice; no other transaction must see the first value."""
    pattern.overwrite(X, 91)
    pattern.overwrite(X, 11)


def write_then_read(pk: int, value: int, *, other: int) -> Program:
    """Return a transaction that writes one row, then reads the other."""

    def program(pattern: AccessPattern) -> int:
        pattern.overwrite(pk, value)
        return pattern.read(other)

    return program


def search_twice(pattern: AccessPattern) -> tuple[Any, Any]:
    return pattern.search(), pattern.search()


def insert_row(pattern: AccessPattern) -> None:
    """Insert a row that `search_twice` finds."""
    # No row of the two is touched, so that locks on rows cannot prevent it.
    pattern.items.create(pk=3, value=32)


def _writer(value: int) -> int:
    return value % 10


def _dirty_write(observed: Observation) -> bool:
    return _writer(observed.end[X]) != _writer(observed.end[Y])


def _vanished(observed: Observation) -> bool:
    """Whether C saw x from a later transaction than y, which it read afterwards."""
    last = _writer(observed.end[X])
    # By the order of the writers: 0 is the initial value, 1 that of the one who was overwritten, 2 that of the last.
    x, y = (0 if not _writer(value) else 1 + (_writer(value) == last) for value in observed.seen.get("C", (0, 0)))
    return y < x


def _skewed_read(observed: Observation) -> bool:
    x, y = observed.seen.get("A", (0, 0))
    return _writer(x) != _writer(y)


def _lost_update(observed: Observation) -> bool:
    """Whether an addition was committed and is not in the sum."""
    # Only committed transactions are in `seen`: one that was refused has lost nothing.
    return observed.end[X] != 10 + ("A" in observed.seen) + 2 * ("B" in observed.seen)


def _circular_flow(observed: Observation) -> bool:
    # Both must have seen the other's write: then neither can have come first.
    return (observed.seen.get("A"), observed.seen.get("B")) == (22, 11)


def _changed_answer(observed: Observation) -> bool:
    first, second = observed.seen.get("A", ((), ()))
    return bool(first != second)


def _all_anomalies() -> Iterator[Anomaly]:
    yield Anomaly(
        name="G0",
        title="dirty write",
        text="Two transactions write x and y; x ends with one's value, y with the other's.",
        programs=(write_both(1), write_both(2)),
        shown_by=_dirty_write,
    )
    yield Anomaly(
        name="G1a",
        title="aborted read",
        text="B reads what A wrote and rolled back.",
        programs=(write_and_roll_back, read_rows(X, X)),
        shown_by=lambda observed: 11 in observed.seen.get("B", ()),
    )
    yield Anomaly(
        name="G1b",
        title="intermediate read",
        text="B reads a value that A overwrote before its commit.",
        programs=(write_twice, read_rows(X, X)),
        shown_by=lambda observed: 91 in observed.seen.get("B", ()),
    )
    yield Anomaly(
        name="G1c",
        title="circular information flow",
        text="A reads what B wrote, and B reads what A wrote.",
        programs=(write_then_read(X, 11, other=Y), write_then_read(Y, 22, other=X)),
        shown_by=_circular_flow,
    )
    yield Anomaly(
        name="OTV",
        title="observed transaction vanishes",
        text="C reads a transaction's x, and then y from before that transaction.",
        programs=(write_both(1), write_both(2), read_rows(X, Y)),
        shown_by=_vanished,
    )
    yield Anomaly(
        name="PMP",
        title="predicate-many-preceders (phantom)",
        text="A searches twice; the second time it finds a row that B inserted in between.",
        programs=(search_twice, insert_row),
        shown_by=_changed_answer,
    )
    yield Anomaly(
        name="P4",
        title="lost update",
        text="A adds 1 to x, B adds 2; one of the additions is gone.",
        programs=(lambda pattern: pattern.add(X, 1), lambda pattern: pattern.add(X, 2)),
        shown_by=_lost_update,
    )
    yield Anomaly(
        name="G-single",
        title="read skew",
        text="B changes x and y together; A reads the old x and the new y.",
        programs=(read_rows(X, Y), write_both(2)),
        shown_by=_skewed_read,
    )
    yield Anomaly(
        name="G2-item",
        title="write skew",
        text="A takes 30 from x, B from y, each because x + y has 30; then it has -30.",
        programs=(lambda pattern: pattern.withdraw(X, 30), lambda pattern: pattern.withdraw(Y, 30)),
        shown_by=lambda observed: observed.end[X] + observed.end[Y] < 0,
    )
    yield Anomaly(
        name="G2",
        title="anti-dependency cycle (write skew on a search)",
        text="A and B each insert a row because a search found none; then there are two.",
        programs=(lambda pattern: pattern.insert_if_none(3, 31), lambda pattern: pattern.insert_if_none(4, 32)),
        shown_by=lambda observed: observed.end.keys() >= {3, 4},
    )


ANOMALIES: Mapping[str, Anomaly] = MappingProxyType({anomaly.name: anomaly for anomaly in _all_anomalies()})
"""Every anomaly by its name, in the order of the published tables."""
