"""The arithmetic of the benchmarks: medians and ratios of samples, without a database or a clock."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from django_lockstep.lab.simulator.report import jain_index
from django_lockstep.lab.simulator.tally import Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One measurement of one contender."""

    operations: int
    """Successful operations."""
    seconds: float
    """From the start of the first worker to the end of the last."""
    p50_ms: float | None
    """Median latency in milliseconds, of a whole batch where it does batches."""
    p95_ms: float | None
    """The 95th percentile."""
    p99_ms: float | None
    """The 99th percentile."""
    retries: float | None
    """Retries per operation; None where they are not counted."""
    fairness: float | None
    """Jain's index over the workers."""
    client_us: float | None
    """Microseconds of CPU time of the clients per operation."""
    server_us: float | None
    """The same for all processes of the server; None where they are not visible."""
    verdict: str
    """``correct``, or the first error found."""

    @property
    def rate(self) -> float:
        """Operations a second."""
        return self.operations / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The medians of one contender over all rounds."""

    rate: float
    """Operations a second."""
    ratio: float | None
    """Its rate divided by the yardstick's in the same round."""
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
    """``correct`` if it was in every round, otherwise the first error found."""


_MEDIANS = ("p50_ms", "p95_ms", "p99_ms", "retries", "fairness", "client_us", "server_us")


def median_of(values: Iterable[float | None]) -> float | None:
    """Return the median of the values that are not None; None if there are none."""
    numbers = [value for value in values if value is not None]
    return median(numbers) if numbers else None


def ratio(value: float, yardstick: float) -> float | None:
    """Return the value divided by the yardstick's; None if that is 0."""
    return value / yardstick if yardstick else None


def combine(samples: Sequence[Sample], yardstick: Sequence[Sample | None]) -> Figures:
    """Return the medians over the rounds; both sequences have the samples of a round at the same index.

    In a round without the yardstick there is no ratio.
    """
    ratios = [None if its is None else ratio(mine.rate, its.rate) for mine, its in zip(samples, yardstick, strict=True)]
    # Medians, because one checkpoint or one other program in a round would move a mean.
    numbers = [value for value in ratios if value is not None]
    wrong = [sample.verdict for sample in samples if sample.verdict != "correct"]
    return Figures(
        rate=median(sample.rate for sample in samples),
        ratio=median_of(ratios),
        lowest=min(numbers, default=None),
        highest=max(numbers, default=None),
        **{name: median_of(getattr(sample, name) for sample in samples) for name in _MEDIANS},
        verdict=wrong[0] if wrong else "correct",
    )


def build_sample(
    tallies: Sequence[Tally],
    *,
    size: int,
    retries: bool,
    client_cpu: float | None,
    server_cpu: float | None,
    verdict: str,
) -> Sample:
    """Return the sample of the workers' tallies; each success counts as ``size`` operations, CPU is in seconds."""
    whole = Tally.merge(tallies)
    operations = whole.succeeded * size
    marks = [whole.latencies.percentile(percent) for percent in (50, 95, 99)]
    p50, p95, p99 = (None if mark is None else mark / 1e6 for mark in marks)
    # By successful operations: what was given up on has no figure of its own.
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
