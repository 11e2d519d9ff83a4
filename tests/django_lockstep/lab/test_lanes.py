"""A load lane by lane while it runs."""

import io
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from django_lockstep.lab.simulator.audit import Balances
from django_lockstep.lab.simulator.progress import Lane, LaneWatch, show_progress
from django_lockstep.lab.simulator.tally import Tally

HELD = Balances(stored=Decimal(90), booked=Decimal(100), difference=Decimal(10))


class Pool:
    """What a watch sees of a pool of workers, and of the clock."""

    def __init__(self) -> None:
        self.completed = 0
        self.now = 0.0
        self.looks = 0

    def balances(self) -> Balances:
        self.looks += 1
        return HELD

    def work(self, operations: int, *, seconds: float = 0.0) -> None:
        self.completed += operations
        self.now += seconds


@pytest.fixture
def pool() -> Pool:
    return Pool()


@pytest.fixture
def reported() -> list[tuple[Lane, ...]]:
    return []


@pytest.fixture
def watch(pool: Pool, reported: list[tuple[Lane, ...]]) -> LaneWatch:
    trials: Any = [
        SimpleNamespace(label=label, safe=True, balances=pool.balances, results=[]) for label in ("first", "second")
    ]
    return LaneWatch(trials=trials, completed=lambda: pool.completed, report=reported.append, clock=lambda: pool.now)


def answered(operations: int, *, seconds: int) -> Any:
    """A round in which one worker answered so many operations, each in a millisecond."""
    tally = Tally(succeeded=operations, started=10**9, ended=(1 + seconds) * 10**9)
    for _ in range(operations):
        tally.latencies.record(10**6)
    return SimpleNamespace(results=[tally, None])


def test_the_time_before_the_first_operation_does_not_count(pool: Pool, watch: LaneWatch) -> None:
    tick = watch("first")
    pool.work(0, seconds=5.0)
    tick()
    pool.work(1)
    tick()
    pool.work(50, seconds=0.5)
    tick()
    assert watch.lanes["first"].rates == (100.0,)
    assert watch.lanes["first"].rate == 100.0


def test_rates_are_over_a_quarter_of_a_second_and_more(pool: Pool, watch: LaneWatch) -> None:
    tick = watch("first")
    pool.work(1)
    tick()
    for _ in range(6):
        pool.work(10, seconds=0.125)
        tick()
    assert watch.lanes["first"].rates == (80.0, 80.0, 80.0)
    assert watch.lanes["first"].times == (0.25, 0.5, 0.75)
    assert watch.lanes["first"].operations == 60
    assert pool.looks == 2  # at the accounts less often


def test_a_round_that_has_ended_has_exact_figures(
    pool: Pool, watch: LaneWatch, reported: list[tuple[Lane, ...]]
) -> None:
    tick = watch("first")
    pool.work(1)
    tick()
    watch.trials[0].results.append(answered(300, seconds=2))
    watch("second")
    lane = reported[-1][0]
    assert (lane.state, lane.operations, lane.rate, lane.balances) == ("waiting", 300, 150.0, HELD)
    assert lane.p99 == pytest.approx(1.0, rel=0.02)
    assert lane.difference == 10
    assert (lane.rates, lane.times) == ((150.0,), (2.0,))


def test_what_other_lanes_completed_is_not_counted_twice(pool: Pool, watch: LaneWatch) -> None:
    pool.work(1000)
    tick = watch("first")
    pool.work(1)
    tick()
    pool.work(25, seconds=0.25)
    tick()
    assert watch.lanes["first"].operations == 25


def test_at_the_end_all_are_done(watch: LaneWatch, reported: list[tuple[Lane, ...]]) -> None:
    watch("first")
    watch.trials[0].results.append(answered(3, seconds=1))
    watch.end()
    assert [(lane.state, lane.operations) for lane in reported[-1]] == [("done", 3), ("done", 0)]


# What a terminal shows of it


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_what_is_raced_and_how_much_was_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    done = 100
    terminal = Terminal()
    with show_progress(terminal, total=2, completed=lambda: done) as begin:
        assert begin is not None
        begin("first")
        tick = begin("second")
        assert tick is not None
        done = 1350
        tick()
    assert "2/2 second" in terminal.getvalue()
    assert "1,250 operations" in terminal.getvalue()


def test_without_a_terminal_there_is_nothing_to_call() -> None:
    with show_progress(None, total=2, completed=int) as begin:
        assert begin is None
