"""A sweep: the same strategies measured at several numbers of workers, or of accounts, in one run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from django_lockstep.lab.simulator.advice import best_of, figures
from django_lockstep.lab.simulator.load_plan import LoadPlan, positive_int
from django_lockstep.lab.simulator.report import LoadRow
from django_lockstep.lab.wording import counted, listed

__all__ = ["Axis", "SizeResult", "Sweep", "SweepReport", "advice_on_sweep"]

Axis = Literal["workers", "accounts"]
"""What can be varied."""

_DROP = 0.75
"""A rate at the largest size below this share of the best rate is mentioned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """What is varied, and its values."""

    axis: Axis
    """Which number is varied."""
    values: tuple[int, ...]
    """Its values, without duplicates, in ascending order."""

    @classmethod
    def parse(cls, text: str) -> Sweep:
        """Return the sweep written as ``workers=1,2,4``. Raises ``ValueError`` for anything else."""
        axis, _, listing = text.partition("=")
        words = [word.strip() for word in listing.split(",")]
        if axis not in get_args(Axis) or not all(word.isdecimal() for word in words):
            raise ValueError(f"--sweep must be workers=N,N,... or accounts=N,N,..., not {text!r}")
        # Ascending, since the advice compares the last size with the best one.
        values = sorted({positive_int(int(word), name=f"--sweep {axis}") for word in words})
        return cls(axis=axis, values=tuple(values))  # type: ignore[arg-type]

    def describe(self, value: int) -> str:
        """Return a size in words, such as ``8 workers``."""
        return counted(value, self.axis.removesuffix("s"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeResult:
    """The rows of all strategies at one size."""

    value: int
    """The size."""
    rows: tuple[LoadRow, ...]
    """The measured strategies, in the order asked for."""

    def row(self, strategy: str) -> LoadRow | None:
        """Return this strategy's row; None where it was not measured."""
        return next((row for row in self.rows if row.strategy == strategy), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepReport:
    """All strategies at all sizes."""

    environment: Mapping[str, Any]
    """What it ran on."""
    sweep: Sweep
    """What was varied."""
    plan: LoadPlan
    """How it was loaded; ``workers`` is the largest number where that is varied."""
    load: Mapping[str, Any]
    """What the operations were, in plain values; ``accounts`` is the largest number where that is varied."""
    planned: tuple[str, ...]
    """The strategies asked for."""
    points: tuple[SizeResult, ...]
    """What was measured, by size."""
    advice: tuple[str, ...]
    """Which one to use where, in sentences drawn from the rows."""
    interrupted: str | None = None
    """The signal that ended the run early."""
    notes: tuple[str, ...] = field(default=())
    """What else a reader has to know."""

    @property
    def rows(self) -> tuple[LoadRow, ...]:
        """All rows of all points."""
        return tuple(row for point in self.points for row in point.rows)

    def line(self, strategy: str) -> list[tuple[int, LoadRow]]:
        """Return the strategy's rows with their sizes."""
        return [(point.value, row) for point in self.points if (row := point.row(strategy))]


def advice_on_sweep(sweep: Sweep, points: Sequence[SizeResult]) -> tuple[str, ...]:
    """Return which strategy to use at which size, where its rate peaks, and which strategies were wrong."""
    chosen = [(point.value, best[0]) for point in points if (best := best_of(_correct(point)))]
    return (*_choices(sweep, chosen), *_peaks(sweep, points, chosen), *_wrong(sweep, points))


def _correct(point: SizeResult) -> list[LoadRow]:
    return [row for row in point.rows if row.safe and row.status == "correct"]


def _choices(sweep: Sweep, chosen: Sequence[tuple[int, LoadRow]]) -> Iterable[str]:
    runs: list[list[tuple[int, LoadRow]]] = []
    for value, row in chosen:
        # Neighbouring sizes with the same choice become one sentence.
        if runs and runs[-1][-1][1].strategy == row.strategy:
            runs[-1].append((value, row))
        else:
            runs.append([(value, row)])
    for run in runs:
        (first, _), (last, row) = run[0], run[-1]
        where = sweep.describe(first) if first == last else f"{first:,} to {sweep.describe(last)}"
        yield f"With {where} use {row.strategy}: {figures(row)}{'' if first == last else f' with {last:,}'}."


def _peaks(sweep: Sweep, points: Sequence[SizeResult], chosen: Sequence[tuple[int, LoadRow]]) -> Iterable[str]:
    """Say of the chosen strategies at which size they were fastest, if larger sizes made them slower."""
    for name in dict.fromkeys(row.strategy for _, row in chosen):
        line = [(point.value, row) for point in points if (row := point.row(name))]
        at, best = max(line, key=lambda pair: pair[1].operations_per_second)
        value, last = line[-1]
        if last.operations_per_second < _DROP * best.operations_per_second:
            share = last.operations_per_second / best.operations_per_second
            yield f"{name} is fastest with {sweep.describe(at)}, and has {share:.0%} of that rate with {value:,}."


def _wrong(sweep: Sweep, points: Sequence[SizeResult]) -> Iterable[str]:
    wrong: dict[str, list[int]] = {}
    for point in points:
        for row in point.rows:
            if row.status not in {"correct", "untested"}:
                wrong.setdefault(row.strategy, []).append(point.value)
    for name, values in wrong.items():
        sizes = listed([*(f"{value:,}" for value in values[:-1]), sweep.describe(values[-1])])
        yield f"{name} was wrong with {sizes}: no speed makes up for that."
