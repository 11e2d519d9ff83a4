"""A load while it runs: a progress bar on a terminal; or strategy by strategy what was done, and what accounts hold."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Literal, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from django_lockstep.lab.simulator.audit import Balances
from django_lockstep.lab.simulator.report import merge_rounds
from django_lockstep.lab.simulator.trials import LoadTrial, ProgressHook

_EVERY = 0.25
"""Seconds for which operations are counted; an operation less or more makes no difference then."""
_SHORTEST = 0.1
"""Seconds at the end of a round for which they are."""
_BALANCE_EVERY = 0.5
"""Seconds between two looks at the accounts, which take time from the workers."""


@contextlib.contextmanager
def show_progress(
    terminal: TextIO | None, *, total: int, completed: Callable[[], int]
) -> Iterator[ProgressHook | None]:
    """Show what runs, and how many operations it has completed; yields what to call when the next of ``total`` begins.

    Yields None, and shows nothing, without a terminal.
    """
    if terminal is None:
        yield None
        return
    console = Console(file=terminal)
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), TextColumn("{task.fields[done]}"))
    # Refreshed by the hook alone: a thread of its own would take time from the workers.
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True, auto_refresh=False) as bar:
        task = bar.add_task("starting", total=total, done="")
        begun = iter(range(total + 1))

        def begin(name: str) -> Callable[[], None]:
            # The pool counts over all rounds, so that what it had counted before is subtracted.
            number, before = next(begun), completed()
            bar.update(task, description=f"{number + 1}/{total} {name}", completed=number)

            def tick() -> None:
                bar.update(task, done=f"{completed() - before:,} operations")
                bar.refresh()

            return tick

        bar.refresh()
        yield begin


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One strategy so far."""

    name: str
    safe: bool
    """Whether it claims to lose no update."""
    state: Literal["waiting", "running", "done"] = "waiting"
    """``waiting`` before its next round, or its first one."""
    operations: int = 0
    """How many were completed."""
    rates: tuple[float, ...] = ()
    """Operations per second, each over a quarter of a second of its own time or somewhat more."""
    times: tuple[float, ...] = ()
    """Where each of ``rates`` ends, in seconds of its own time, in which other lanes' rounds do not count."""
    p99: float | None = None
    """Milliseconds, of the rounds that have ended."""
    balances: Balances | None = None

    measured: float | None = None
    """Operations per second that were answered, in the rounds that have ended."""

    @property
    def rate(self) -> float:
        """Operations per second so far: as measured, or in the first round the mean of ``rates``."""
        if self.measured is not None:
            return self.measured
        return sum(self.rates) / len(self.rates) if self.rates else 0.0

    @property
    def difference(self) -> Decimal:
        """How far the accounts are from their entries."""
        return self.balances.difference if self.balances else Decimal(0)


@dataclass(slots=True, kw_only=True)
class LaneWatch:
    """Follows trials: call it as a `ProgressHook`."""

    trials: Sequence[LoadTrial]
    completed: Callable[[], int]
    """How many operations all workers have completed, in all rounds."""
    report: Callable[[tuple[Lane, ...]], None]
    """Called with all lanes whenever one is further."""
    clock: Callable[[], float] = time.monotonic
    lanes: dict[str, Lane] = field(init=False)
    """By the trials' labels."""

    def __post_init__(self) -> None:
        self.lanes = {trial.label: Lane(name=trial.label, safe=trial.safe) for trial in self.trials}

    def __call__(self, label: str) -> Callable[[], None]:
        """Begin a round of the trial with this label; return what is called every tenth of a second."""
        self._end_round()
        self._change(label, state="running")
        (trial,) = [trial for trial in self.trials if trial.label == label]
        counted, next_look = self.completed(), 0.0
        since: float | None = None  # when the operations counted last were complete

        def tick() -> None:
            nonlocal counted, next_look, since
            now, completed = self.clock(), self.completed()
            if since is None:
                # Workers set up first, and wait for each other.
                since = now if completed > counted else None
                counted = completed
            elif now - since >= _EVERY:
                balances = self.lanes[label].balances
                if now >= next_look:
                    balances, next_look = trial.balances(), now + _BALANCE_EVERY
                rated = self._rate(label, completed - counted, seconds=now - since)
                counted, since = completed, now
                self._change(label, balances=balances, **rated)

        return tick

    def end(self) -> None:
        """All rounds have ended."""
        self._end_round()
        for label in self.lanes:
            self._change(label, state="done")

    def _end_round(self) -> None:
        for trial in self.trials:
            if self.lanes[trial.label].state == "running":
                whole = merge_rounds([result.results for result in trial.results])
                lane, operations = self.lanes[trial.label], whole.answered + whole.failed
                rest = whole.seconds - (lane.times[-1] if lane.times else 0.0)
                rated = self._rate(trial.label, operations - lane.operations, seconds=rest) if rest > _SHORTEST else {}
                self._change(
                    trial.label,
                    **rated | {"operations": operations},
                    state="waiting",
                    measured=whole.rate if whole.seconds else None,
                    p99=whole.latencies.milliseconds(99),
                    balances=trial.balances(),
                )

    def _rate(self, label: str, operations: int, *, seconds: float) -> dict[str, Any]:
        """Return what changes when so many more operations were completed in so many more seconds."""
        lane = self.lanes[label]
        return {
            "operations": lane.operations + operations,
            "rates": (*lane.rates, max(0, operations) / seconds),
            "times": (*lane.times, (lane.times[-1] if lane.times else 0.0) + seconds),
        }

    def _change(self, label: str, **changes: object) -> None:
        self.lanes[label] = replace(self.lanes[label], **changes)  # type: ignore[arg-type]
        self.report(tuple(self.lanes.values()))
