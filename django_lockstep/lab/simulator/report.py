"""The results of a simulation: plain data, which tables, JSON, plots and advice only render."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django_lockstep.lab.simulator.audit import AuditStatus, AuditVerdict
from django_lockstep.lab.simulator.load_plan import LoadPlan, Sweep
from django_lockstep.lab.simulator.tally import Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRow:
    """One strategy under one load."""

    strategy: str
    """Its name."""
    safe: bool
    """Whether it claims to lose no update."""
    worker_failures: tuple[str, ...] = ()
    """The workers that did not finish, and why; what they did is in the verdict only."""
    cut_short: bool = False
    """Whether the run was interrupted while this strategy was measured."""
    size: int | None = None
    """The number of workers or accounts, where a sweep varies it."""
    verdict: AuditVerdict
    """What the database holds, compared with what the workers acknowledged."""
    workers: int
    """The workers whose figures are in this row."""
    tally: Tally
    """What they did together."""
    fairness: float | None
    """Jain's index of the workers' rates: 1 where all got the same, 1/n where one of n got everything; None where no
    operation was answered."""

    @property
    def status(self) -> AuditStatus:
        """The verdict in one word."""
        return self.verdict.status

    @property
    def wrong(self) -> bool:
        """Whether the accounts did not end as they must."""
        return self.status not in {"correct", "untested"}

    @property
    def breaks_promise(self) -> bool:
        """Whether a strategy that claims to be safe was not seen to be."""
        return self.safe and (self.wrong or (self.status == "untested" and not self.cut_short))

    @property
    def latency_ms(self) -> dict[str, float | None]:
        """Milliseconds from call to answer, of all operations; each None where nothing was measured."""
        latencies = self.tally.latencies
        percentiles = {f"p{percent}": latencies.milliseconds(percent) for percent in (50, 95, 99)}
        # The maximum is exact, percentiles are those of buckets.
        return {**percentiles, "max": None if percentiles["p50"] is None else latencies.largest / 1e6}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """All strategies under one load, or at each size of a sweep, and on what."""

    environment: Mapping[str, Any]
    """What it ran on."""
    planned: tuple[str, ...]
    """The strategies asked for."""
    advice: tuple[str, ...]
    """Which one to use, in sentences drawn from the rows."""
    interrupted: str | None = None
    """The signal that ended the run early."""
    notes: tuple[str, ...] = ()
    """What else a reader has to know."""
    plan: LoadPlan
    """How it was loaded; ``workers`` is the largest number where a sweep varies it."""
    load: Mapping[str, Any]
    """What the operations were, in plain values; ``accounts`` is the largest number where a sweep varies it."""
    sweep: Sweep | None = None
    """What was varied."""
    rows: tuple[LoadRow, ...]
    """The strategies measured, by size and in the order of ``planned``."""

    @property
    def versions(self) -> list[str]:
        """What it ran on beside the server, in words."""
        django, python, cpus = (self.environment[name] for name in ("django", "python", "cpus"))
        return [f"Django {django}", f"Python {python}", f"{cpus} CPUs"]

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of the sweep at which a strategy was measured."""
        return tuple(dict.fromkeys(row.size for row in self.rows if row.size is not None))

    def line(self, strategy: str) -> dict[int, LoadRow]:
        """Return the strategy's rows by size."""
        return {row.size: row for row in self.rows if row.strategy == strategy and row.size is not None}


def jain_index(rates: Sequence[float]) -> float | None:
    """Return Jain's fairness index of the rates, from 1/n to 1; None where there were no operations.

    R. Jain, D. Chiu, W. Hawe: "A Quantitative Measure of Fairness and Discrimination", DEC-TR-301, 1984.
    """
    squares = sum(rate * rate for rate in rates)
    return sum(rates) ** 2 / (len(rates) * squares) if squares else None


def build_row(rounds: Sequence[Sequence[Tally | None]], verdict: AuditVerdict, **trial: Any) -> LoadRow:
    """Return the figures of the workers that finished, with the verdict on all; ``trial`` are the row's other fields.

    Each round has the workers' tallies in the same order, None for a worker that did not finish it.
    """
    tallies = [Tally.concatenate(own) for own in zip(*rounds, strict=True) if any(own)]
    fairness = jain_index([tally.rate for tally in tallies])
    return LoadRow(**trial, verdict=verdict, workers=len(tallies), tally=merge_rounds(rounds), fairness=fairness)


def merge_rounds(rounds: Sequence[Sequence[Tally | None]]) -> Tally:
    """Return what all workers did in these rounds; None is a worker that did not finish one."""
    # Workers of one round share their time, rounds follow each other: rates are divided by the sum of the rounds.
    return Tally.concatenate(map(Tally.merge, rounds))
