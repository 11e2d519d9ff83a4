"""What a simulation comes to: plain data, which tables, JSON, CSV and advice only render."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django_lockstep.lab.simulator.audit import Status, Verdict
from django_lockstep.lab.simulator.plan import Plan
from django_lockstep.lab.simulator.tally import Tally

__all__ = ["Latency", "LoadReport", "Row", "factor", "jain"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Milliseconds from call to answer; each None where nothing was measured."""

    p50: float | None
    """The median."""
    p95: float | None
    """What 95 of 100 operations stay within."""
    p99: float | None
    """What 99 of 100 operations stay within."""
    max: float | None
    """The longest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One strategy under one load."""

    strategy: str
    """Its name."""
    safe: bool
    """Whether it claims to lose no update."""
    guarantee: str
    """What it relies on, in a sentence."""
    engine: str = ""
    """What ran it, where the same strategy can be run in several ways."""
    verdict: Verdict
    """What the database holds, against what the workers were told."""
    workers: int
    """The workers whose figures are in this row."""
    seconds: float
    """From the common start to the last answer."""
    succeeded: int
    """Operations that were done."""
    refused: int
    """Operations that were refused, because the account did not cover them."""
    errors: Mapping[str, int]
    """Operations that failed, by the kind of error."""
    error_examples: Mapping[str, str]
    """The first message of each kind."""
    operations_per_second: float
    """Operations that got an answer, done or refused, a second."""
    latency_ms: Latency
    """Latency of all operations."""
    retries: int
    """Attempts that were repeated."""
    conflicts: int
    """Attempts that were repeated because somebody else was faster."""
    deadlocks: int
    """Attempts that ended in a deadlock, repeated or not."""
    fairness: float | None
    """Jain's index of the workers' rates: 1 where all got the same, 1/n where one of n got everything."""
    casualties: tuple[str, ...]
    """The workers that did not come to an end, and why; what they did is only in the verdict."""
    cut_short: bool
    """Whether the run was interrupted while this strategy was measured."""

    @property
    def status(self) -> Status:
        """The verdict in one word."""
        return self.verdict.status

    @property
    def operations(self) -> int:
        """Operations that were tried."""
        return self.succeeded + self.refused + self.failed

    @property
    def failed(self) -> int:
        """Operations that failed."""
        return sum(self.errors.values())

    @property
    def retries_per_operation(self) -> float:
        """Repeated attempts for each operation."""
        return self.retries / self.operations if self.operations else 0.0

    @property
    def breaks_promise(self) -> bool:
        """Whether a strategy that claims to be safe was not seen to be."""
        untested = self.status == "untested" and not self.cut_short
        return self.safe and (untested or self.status not in {"correct", "untested"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """All strategies under one load."""

    environment: Mapping[str, Any]
    """What it ran on."""
    plan: Plan
    """How it was loaded."""
    load: Mapping[str, Any]
    """What the operations were, in plain values."""
    planned: tuple[str, ...]
    """The strategies asked for."""
    rows: tuple[Row, ...]
    """The strategies measured, in the same order."""
    advice: tuple[str, ...]
    """Which one to use, in sentences drawn from the rows."""
    counterparts: tuple[Row, ...] = ()
    """The same strategies by another engine, those that have one, measured in the same run."""
    interrupted: str | None = None
    """The signal that ended the run early."""
    notes: tuple[str, ...] = field(default=())
    """What else a reader has to know."""

    def counterpart(self, row: Row) -> Row | None:
        """Return the row of the same strategy by the other engine; None where there is none."""
        return next((other for other in self.counterparts if other.strategy == row.strategy), None)


def factor(row: Row, counterpart: Row) -> float | None:
    """Return how many times the operations a second of the first the second does; None where the first did nothing."""
    rate = row.operations_per_second
    return counterpart.operations_per_second / rate if rate else None


def jain(rates: Sequence[float]) -> float | None:
    """Return Jain's fairness index of the rates, from 1/n to 1; None where nobody did anything.

    R. Jain, D. Chiu, W. Hawe: "A Quantitative Measure of Fairness and Discrimination", DEC-TR-301, 1984.
    """
    squares = sum(rate * rate for rate in rates)
    return sum(rates) ** 2 / (len(rates) * squares) if squares else None


def row_of(
    laps: Sequence[Sequence[Tally | None]],
    verdict: Verdict,
    *,
    strategy: str,
    safe: bool,
    guarantee: str,
    engine: str = "",
    casualties: tuple[str, ...] = (),
    cut_short: bool = False,
) -> Row:
    """Return the figures of the workers that finished, with the verdict on all.

    Each lap has the workers' tallies in the same order, None for a worker that did not finish it.
    """
    whole = _together([_side_by_side(lap) for lap in laps])
    tallies = [_together(mine) for mine in zip(*laps, strict=True) if any(mine)]
    seconds = (whole.ended - whole.started) / 1e9
    return Row(
        strategy=strategy,
        safe=safe,
        guarantee=guarantee,
        engine=engine,
        verdict=verdict,
        workers=len(tallies),
        seconds=seconds,
        succeeded=whole.succeeded,
        refused=whole.refused,
        errors=dict(whole.errors),
        error_examples=whole.examples,
        operations_per_second=whole.answered / seconds if seconds else 0.0,
        latency_ms=_latency_of(whole),
        retries=whole.conflicts + whole.retried_deadlocks,
        conflicts=whole.conflicts,
        deadlocks=whole.retried_deadlocks + whole.failed_deadlocks,
        fairness=jain([_rate(tally) for tally in tallies]),
        casualties=casualties,
        cut_short=cut_short,
    )


def _side_by_side(lap: Sequence[Tally | None]) -> Tally | None:
    there = [tally for tally in lap if tally]
    return Tally.merged(there) if there else None


def _together(laps: Sequence[Tally | None]) -> Tally:
    there = [tally for tally in laps if tally]
    return Tally.joined(there) if there else Tally()


def _latency_of(tally: Tally) -> Latency:
    marks = [tally.latencies.percentile(percent) for percent in (50, 95, 99)]
    largest = tally.latencies.largest if marks[0] is not None else None
    p50, p95, p99, longest = (None if mark is None else mark / 1e6 for mark in (*marks, largest))
    return Latency(p50=p50, p95=p95, p99=p99, max=longest)


def _rate(tally: Tally) -> float:
    return tally.answered / (tally.ended - tally.started) if tally.ended > tally.started else 0.0
