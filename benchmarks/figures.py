"""The arithmetic of the benchmarks: what is made of samples, without a database or a clock."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from django_lockstep.lab.simulator.report import jain_index
from django_lockstep.lab.simulator.tally import Tally

__all__ = ["Figures", "Sample", "combined", "measured", "middle", "ratio"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One contender, measured once."""

    operations: int
    """Operations that were done."""
    seconds: float
    """From the first beginning to the last end."""
    p50_ms: float | None
    """Median latency in milliseconds, of a whole batch where it does batches."""
    p95_ms: float | None
    """What 95 of 100 stay within."""
    p99_ms: float | None
    """What 99 of 100 stay within."""
    retries: float | None
    """Attempts repeated, for each operation; None where nobody counts them."""
    fairness: float | None
    """Jain's index over the workers."""
    client_us: float | None
    """Microseconds of CPU that the clients used for each operation."""
    server_us: float | None
    """The same of the server, with all its processes; None where it runs elsewhere."""
    verdict: str
    """``correct``, or what was found wrong."""

    @property
    def rate(self) -> float:
        """Operations a second."""
        return self.operations / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One contender over all rounds: medians."""

    rate: float
    """Operations a second."""
    ratio: float | None
    """Its rate by the yardstick's of the same round."""
    lowest: float | None
    """The smallest such ratio."""
    highest: float | None
    """The largest such ratio."""
    p50_ms: float | None
    """As in `Sample`, here and below."""
    p95_ms: float | None
    p99_ms: float | None
    retries: float | None
    fairness: float | None
    client_us: float | None
    server_us: float | None
    verdict: str
    """``correct`` if it was so in every round, else the first thing found wrong."""
    rounds: int
    """How often it was measured."""


_MEDIANS = ("p50_ms", "p95_ms", "p99_ms", "retries", "fairness", "client_us", "server_us")


def middle(values: Iterable[float | None]) -> float | None:
    """Return the median of the values that are there; None where none is."""
    known = [value for value in values if value is not None]
    return median(known) if known else None


def ratio(value: float, yardstick: float) -> float | None:
    """Return value by yardstick; None where the yardstick shows nothing."""
    return value / yardstick if yardstick else None


def combined(samples: Sequence[Sample], yardstick: Sequence[Sample | None]) -> Figures:
    """Return the medians over the rounds; the samples of one round stand at the same place in both sequences.

    In a round without the yardstick there is no ratio.
    """
    ratios = [None if its is None else ratio(mine.rate, its.rate) for mine, its in zip(samples, yardstick, strict=True)]
    known = [value for value in ratios if value is not None]
    wrong = [sample.verdict for sample in samples if sample.verdict != "correct"]
    return Figures(
        rate=median(sample.rate for sample in samples),
        ratio=middle(ratios),
        lowest=min(known, default=None),
        highest=max(known, default=None),
        **{name: middle(getattr(sample, name) for sample in samples) for name in _MEDIANS},
        verdict=wrong[0] if wrong else "correct",
        rounds=len(samples),
    )


def measured(
    tallies: Sequence[Tally],
    *,
    size: int,
    retries: bool,
    client_cpu: float | None,
    server_cpu: float | None,
    verdict: str,
) -> Sample:
    """Return what the workers' tallies come to; each success counts as ``size`` operations, CPU is in seconds."""
    whole = Tally.merge(tallies)
    operations = whole.succeeded * size
    marks = [whole.latencies.percentile(percent) for percent in (50, 95, 99)]
    p50, p95, p99 = (None if mark is None else mark / 1e6 for mark in marks)
    repeated = whole.conflicts + whole.retried_deadlocks
    return Sample(
        operations=operations,
        seconds=(whole.ended - whole.started) / 1e9,
        p50_ms=p50,
        p95_ms=p95,
        p99_ms=p99,
        retries=repeated / operations if retries and operations else None,
        fairness=jain_index([_rate(tally) for tally in tallies]),
        client_us=_each(client_cpu, operations),
        server_us=_each(server_cpu, operations),
        verdict=verdict,
    )


def _rate(tally: Tally) -> float:
    return tally.succeeded / (tally.ended - tally.started) if tally.ended > tally.started else 0.0


def _each(cpu: float | None, operations: int) -> float | None:
    return None if cpu is None or not operations else cpu * 1e6 / operations
