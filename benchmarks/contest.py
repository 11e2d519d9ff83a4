"""Contenders that do the same work, interleaved in rounds, and compared with one of them, the yardstick."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from benchmarks.figures import Figures, Sample, combine
from benchmarks.suite import FigureTable, Options, Say

OVERHEAD = 2.0
"""Maximum average seconds of one run besides its measurement: creating rows, connections, the check."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """The number of rows and workers at which contenders are compared."""

    rows: int
    """Rows that the work is spread over evenly."""
    workers: int
    """Clients at the same time."""

    def __str__(self) -> str:
        return f"{self.workers} {'worker' if self.workers == 1 else 'workers'}, {self.rows:,} " + (
            "row" if self.rows == 1 else "rows"
        )


class Contender(Protocol):
    """One implementation of the work."""

    @property
    def name(self) -> str:
        """The name in reports and for ``--only``, as ``package:variant``."""
        ...

    def obstacle(self, cell: Cell) -> str | None:
        """Return why it cannot run here, such as a package that is not installed; None if it can."""
        ...

    def run(self, cell: Cell, *, seconds: int) -> Sample:
        """Create rows, do the work, and check the rows afterwards."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The results of a contest in one cell."""

    cell: Cell
    """The cell."""
    figures: Mapping[str, Figures]
    """The medians, by contender."""
    absent: Mapping[str, str]
    """The contenders without figures, with the reason."""

    def table(self) -> FigureTable:
        """Return the figures as a table, the fastest first."""
        ranked = sorted(self.figures.items(), key=lambda item: -item[1].rate)
        absent = tuple((name, why, *[None] * (len(_COLUMNS) - 2)) for name, why in self.absent.items())
        return FigureTable(
            title=str(self.cell), columns=_COLUMNS, rows=(*(_row(name, figures) for name, figures in ranked), *absent)
        )

    def data(self) -> dict[str, Any]:
        """Return plain values."""
        contenders = {name: asdict(figures) for name, figures in self.figures.items()}
        return {**asdict(self.cell), "contenders": contenders, "absent": dict(self.absent)}


def time_bound(options: Options, *, contenders: int) -> float:
    """Return the maximum seconds of a contest with this number of contenders."""
    runs = len(options.rows) * len(options.workers) * contenders * options.rounds
    return runs * (options.seconds + OVERHEAD)


@dataclass(slots=True, kw_only=True)
class Contest:
    """Runs every contender once in each cell and round; the first one changes from round to round."""

    contenders: Sequence[Contender]
    """The contenders."""
    yardstick: str
    """The name of the one with which the others are compared."""
    options: Options
    """Cells, rounds and seconds."""
    interrupted: Callable[[], bool] = bool
    """Whether the user interrupted; checked after each run, which may have failed only for that reason."""
    failures: dict[tuple[Cell, str], str] = field(default_factory=dict)
    """The contenders that failed in a cell, with the reason; they do not run there again."""

    @property
    def cells(self) -> list[Cell]:
        """All cells, in the order in which they are run."""
        return [Cell(rows=rows, workers=workers) for rows in self.options.rows for workers in self.options.workers]

    @property
    def seconds(self) -> float:
        """How long `run` takes at most: no run begins after that, and the results until then are reported."""
        return time_bound(self.options, contenders=len(self.contenders))

    def run(self, *, say: Say) -> list[Result]:
        """Run all rounds and return the medians of each cell. Raises ``KeyboardInterrupt`` when interrupted."""
        deadline = time.monotonic() + self.seconds
        samples: dict[Cell, list[dict[str, Sample]]] = {cell: [] for cell in self.cells}
        # Rounds outside, contenders inside: a slow phase of the machine meets all of them, and ratios stay comparable.
        for number in range(self.options.rounds):
            for cell in self.cells:
                say(f"round {number + 1} of {self.options.rounds}: {cell}")
                samples[cell].append(dict(self._round(cell, number, deadline=deadline, say=say)))
        return [self._result(cell, rounds) for cell, rounds in samples.items()]

    def _round(self, cell: Cell, number: int, *, deadline: float, say: Say) -> Iterator[tuple[str, Sample]]:
        for contender in self._order(number):
            # Between runs: one that has begun is measured to its end, or its figures would be of a shorter time.
            if time.monotonic() > deadline:
                say("  out of time: the rest is left out")
                return
            if contender.obstacle(cell) or (cell, contender.name) in self.failures:
                continue
            sample = self._sample(contender, cell)
            # Looked at after the run, too: what an interrupt broke off is not the contender's failure.
            if self.interrupted():
                raise KeyboardInterrupt
            if sample is None:
                say(f"  {contender.name:32} {self.failures[cell, contender.name]}")
            else:
                say(f"  {contender.name:32} {sample.rate:10,.0f}/s  {sample.verdict}")
                yield contender.name, sample

    def _sample(self, contender: Contender, cell: Cell) -> Sample | None:
        try:
            return contender.run(cell, seconds=self.options.seconds)
        except Exception as error:  # noqa: BLE001 - one contender's failure is a result, and the others go on
            self.failures[cell, contender.name] = f"FAILED: {type(error).__name__}: {error}".partition("\n")[0]
            return None

    def _order(self, number: int) -> list[Contender]:
        """Return the contenders, starting at another one in each round, so that each runs at different times."""
        start = number * len(self.contenders) // self.options.rounds
        return [*self.contenders[start:], *self.contenders[:start]]

    def _result(self, cell: Cell, rounds: Sequence[Mapping[str, Sample]]) -> Result:
        figures, absent = {}, {}
        for contender in self.contenders:
            name = contender.name
            measured = [samples for samples in rounds if name in samples]
            if measured and (cell, name) not in self.failures:
                # Ratios pair samples of one round, so both lists have an item for each round that this one has.
                yardsticks = [samples.get(self.yardstick) for samples in measured]
                figures[name] = combine([samples[name] for samples in measured], yardsticks)
            else:
                absent[name] = contender.obstacle(cell) or self.failures.get((cell, name), "out of time")
        return Result(cell=cell, figures=figures, absent=absent)


_COLUMNS = (
    *("contender", "verdict", "ops/s", "ratio", "lowest", "highest", "p50 ms", "p95 ms", "p99 ms"),
    *("retries/op", "fairness", "client us/op", "server us/op"),
)


def _row(name: str, figures: Figures) -> tuple[str | float | None, ...]:
    values = asdict(figures)
    return (name, values.pop("verdict"), *values.values())
