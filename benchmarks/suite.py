"""The protocol of a benchmark suite, its options and its results.

To add one, write a module with a ``SUITE`` that keeps to `Suite`, and name it in `SUITES`. A suite whose contenders do
the same work gives them to `benchmarks.contest.Contest`, which interleaves them, takes medians and ratios and makes the
tables; `benchmarks.workers` has the processes for those that are Python, and `benchmarks.figures.build_sample` makes a
sample of what they tell. `benchmarks.deposit` is one of that kind, `benchmarks.explore` is one that is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import import_module
from types import MappingProxyType
from typing import Any, Protocol

SUITES: Mapping[str, str] = MappingProxyType(
    {
        "deposit": "benchmarks.deposit",
        "explore": "benchmarks.explore",
        "find_races": "benchmarks.find_races",
        "idioms": "benchmarks.idioms",
        "leases": "benchmarks.leases",
    }
)
"""The module of every suite, by its name on the command line."""

Say = Callable[[str], None]
"""Takes a line of progress."""
Value = str | int | float | None
"""The value of a table cell; None if it was not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of the command line. Raises ``ValueError``, naming the option, for invalid values."""

    rows: tuple[int, ...] = (1, 10_000)
    """Numbers of rows that the work is spread over; 1 is the hot row."""
    workers: tuple[int, ...] = (8,)
    """Numbers of clients at the same time."""
    rounds: int = 3
    """How often everything is measured; the medians are shown."""
    seconds: int = 2
    """How long each measurement lasts: whole seconds, as pgbench takes them."""
    durable: bool = True
    """Whether a commit waits until it is on the disk."""
    only: tuple[str, ...] = ()
    """Patterns of the names that take part; empty for all."""

    def __post_init__(self) -> None:
        for name in ("rows", "workers"):
            values = getattr(self, name)
            if not values or min(values) < 1:
                raise ValueError(f"--{name} takes whole numbers of at least 1, not {values}")
        # Refused here, before a database is created.
        for name in ("rounds", "seconds"):
            if getattr(self, name) < 1:
                raise ValueError(f"--{name} must be at least 1, not {getattr(self, name)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureTable:
    """Figures to print, in rows under headings."""

    title: str
    """The heading of the table."""
    columns: tuple[str, ...]
    """The column headings, with units."""
    rows: tuple[tuple[Value, ...], ...]
    """The figures."""
    notes: tuple[str, ...] = ()
    """Sentences below the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """The results of a suite."""

    suite: str
    """The suite's name."""
    summary: str
    """What was measured and how, in sentences."""
    tables: tuple[FigureTable, ...]
    """The figures of ``data`` as tables."""
    data: Any
    """All figures, in plain values for JSON."""
    sound: bool
    """Whether everything that should be correct was."""


class Suite(Protocol):
    """A suite: an object named ``SUITE`` in a module of `SUITES`."""

    @property
    def name(self) -> str:
        """The name on the command line."""
        ...

    def names(self) -> Sequence[str]:
        """Return the names that ``--only`` can select."""
        ...

    def seconds(self, options: Options) -> float:
        """Return how long `run` takes at most."""
        ...

    def run(self, options: Options, *, say: Say) -> Section:
        """Measure on Django's default database, which nothing else uses; progress goes to ``say``."""
        ...


def load(name: str) -> Suite:
    """Return the suite of this name; Django must be set up. Raises ``KeyError``."""
    suite: Suite = import_module(SUITES[name]).SUITE
    return suite


def select_names(names: Sequence[str], patterns: Sequence[str]) -> tuple[str, ...]:
    """Return the names that match one of the shell patterns, or all names without patterns.

    Raises ``ValueError`` where nothing fits.
    """
    matches = tuple(name for name in names if not patterns or any(fnmatchcase(name, pattern) for pattern in patterns))
    if not matches:
        raise ValueError(f"--only {','.join(patterns)} matches none of {', '.join(names)}")
    return matches
