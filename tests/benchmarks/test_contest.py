"""Contenders are interleaved; who fails or is absent is told, and never silently left out."""

from dataclasses import dataclass, field

import pytest

from benchmarks.contest import Cell, Contest
from benchmarks.figures import Sample
from benchmarks.suite import Options
from tests.benchmarks.test_figures import of_rate

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
    assert {name: each.ratio for name, each in result.figures.items()} == {"yard": 1.0, "half": 0.5}


def test_a_contender_that_cannot_run_is_listed_with_the_reason() -> None:
    (result,) = contest(Runner("yard", []), Runner("other", [], why="not installed")).run(say=lambda line: None)
    assert result.absent == {"other": "not installed"}
    assert ("other", "not installed") in [row[:2] for row in result.table().rows]


def test_a_contender_that_fails_is_listed_and_the_others_run() -> None:
    log: list[str] = []
    (result,) = contest(Runner("bad", log, error=RuntimeError("no")), Runner("yard", log)).run(say=lambda line: None)
    assert result.absent == {"bad": "FAILED: RuntimeError: no"}
    assert log == ["bad", "yard", "yard"]


def test_without_the_yardstick_there_are_rates_and_no_ratios() -> None:
    (result,) = contest(Runner("yard", [], why="not installed"), Runner("a", [])).run(say=lambda line: None)
    assert (result.figures["a"].rate, result.figures["a"].ratio) == (100, None)


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
