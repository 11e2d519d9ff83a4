"""Contenders are interleaved; who fails or is absent is told, and never silently left out."""

from dataclasses import dataclass, field, replace
from decimal import Decimal

import pytest

from benchmarks.contest import Cell, Contest
from benchmarks.figures import Sample, build_sample, combine
from benchmarks.suite import Options
from django_lockstep.lab.simulator.tally import LoadOperation, Tally

OPTIONS = Options(rows=(1,), workers=(1,), rounds=2, seconds=1)


@dataclass
class Runner:
    """A contender that notes when it is run."""

    name: str
    log: list[str]
    rates: list[int] = field(default_factory=lambda: [100])
    why: str | None = None
    error: Exception | None = None

    def obstacle(self, cell: Cell) -> str | None:
        return self.why

    def run(self, cell: Cell, *, seconds: int) -> Sample:
        self.log.append(self.name)
        if self.error:
            raise self.error
        return of_rate(self.rates[self.log.count(self.name) % len(self.rates)])


def contest(*runners: Runner) -> Contest:
    return Contest(contenders=runners, yardstick="yard", options=OPTIONS)


def test_every_round_has_everybody_and_another_one_begins() -> None:
    log: list[str] = []
    contest(Runner("yard", log), Runner("a", log), Runner("b", log), Runner("c", log)).run(say=lambda line: None)
    assert log == ["yard", "a", "b", "c", "b", "c", "yard", "a"]


def test_everybody_is_measured_by_the_yardstick() -> None:
    (result,) = contest(Runner("yard", []), Runner("half", [], rates=[50])).run(say=lambda line: None)
    assert {name: figures.ratio for name, figures in result.figures.items()} == {"yard": 1.0, "half": 0.5}


def test_a_contender_that_cannot_run_is_listed_with_the_reason() -> None:
    (result,) = contest(Runner("yard", []), Runner("other", [], why="not installed")).run(say=lambda line: None)
    assert result.absent == {"other": "not installed"}
    assert ("other", "not installed") in [row[:2] for row in result.table().rows]


def test_a_contender_that_fails_is_listed_and_the_others_run() -> None:
    log: list[str] = []
    (result,) = contest(Runner("bad", log, error=RuntimeError("no")), Runner("yard", log)).run(say=lambda line: None)
    assert result.absent == {"bad": "FAILED: RuntimeError: no"}
    assert log == ["bad", "yard", "yard"]


def test_an_interrupt_ends_it_without_a_failure_of_the_running_contender() -> None:
    log: list[str] = []
    runs = contest(Runner("yard", log, error=RuntimeError("killed by Ctrl-C")), Runner("a", log))
    runs.interrupted = lambda: True
    with pytest.raises(KeyboardInterrupt):
        runs.run(say=lambda line: None)
    assert log == ["yard"]


def test_nothing_is_begun_when_time_is_up_and_that_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    monkeypatch.setattr(Contest, "seconds", -1.0)
    (result,) = contest(Runner("yard", log), Runner("a", log)).run(say=lambda line: None)
    assert log == []
    assert result.absent == {"yard": "out of time", "a": "out of time"}


def test_all_cells_are_run_and_the_bound_grows_with_them() -> None:
    many = Options(rows=(1, 10), workers=(1, 8), rounds=3, seconds=2)
    runners = [Runner("yard", []), Runner("a", [])]
    large = Contest(contenders=runners, yardstick="yard", options=many)
    assert [str(cell) for cell in large.cells] == [
        "1 worker, 1 row",
        "8 workers, 1 row",
        "1 worker, 10 rows",
        "8 workers, 10 rows",
    ]
    assert large.seconds > 2 * 4 * 3 * 2 > contest(*runners).seconds


# What is made of samples


SAMPLE = Sample(
    operations=100,
    seconds=1.0,
    p50_ms=1.0,
    p95_ms=2.0,
    p99_ms=3.0,
    retries=0.0,
    fairness=1.0,
    client_us=None,
    server_us=None,
    verdict="correct",
)


def of_rate(rate: int, **changes: object) -> Sample:
    return replace(SAMPLE, operations=rate, **changes)  # type: ignore[arg-type]


def tally(*, done: int, started: int, ended: int, took: int) -> Tally:
    """One worker that did so much from one nanosecond to another."""
    worker = Tally(started=started, ended=ended)
    for _ in range(done):
        worker.succeed(LoadOperation(perform=int, changes=((1, Decimal(1)),)))
        worker.latencies.record(took)
    return worker


# Ratios and medians.


def test_a_ratio_is_to_the_yardstick_of_the_same_round() -> None:
    figures = combine([of_rate(50), of_rate(100), of_rate(10)], [of_rate(100), of_rate(100), of_rate(40)])
    assert (figures.lowest, figures.ratio, figures.highest) == (0.25, 0.5, 1.0)


def test_the_median_round_is_told_whatever_one_round_was_disturbed_by() -> None:
    figures = combine([of_rate(100, p99_ms=p99) for p99 in (3.0, 900.0, 4.0)], [of_rate(100)] * 3)
    assert (figures.rate, figures.p99_ms) == (100, 4.0)


def test_wrong_once_is_wrong() -> None:
    rounds = [of_rate(100), of_rate(100, verdict="WRONG: 1 of 100"), of_rate(100)]
    assert combine(rounds, rounds).verdict == "WRONG: 1 of 100"


# One run.


def sample_of(*workers: Tally, size: int = 1, retries: bool = True) -> Sample:
    return build_sample(workers, size=size, retries=retries, client_cpu=0.5, server_cpu=None, verdict="correct")


def test_a_run_spans_all_workers_and_counts_each_operation_of_a_batch() -> None:
    first = tally(done=30, started=0, ended=10**9, took=10**8)
    first.conflicts = 60
    sample = sample_of(first, tally(done=10, started=10**9, ended=2 * 10**9, took=10**8), size=100)
    assert (sample.operations, sample.seconds, sample.rate) == (4000, 2.0, 2000.0)
    assert sample.p50_ms == pytest.approx(100, rel=0.01)
    assert (sample.client_us, sample.server_us, sample.retries) == (125.0, None, 0.015)
    assert sample_of(first, retries=False).retries is None
