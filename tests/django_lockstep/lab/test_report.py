from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_lockstep.lab.simulator.audit import AuditVerdict
from django_lockstep.lab.simulator.report import LoadRow, build_row, jain_index
from django_lockstep.lab.simulator.tally import Acknowledged, LoadOperation, Tally
from tests.django_lockstep.lab.sample_rows import LOST, naive, row

RATES = st.lists(st.floats(0.001, 1000), min_size=1, max_size=64)


@given(RATES)
def test_fairness_is_between_one_nth_and_one(rates: list[float]) -> None:
    index = jain_index(rates)
    assert index is not None
    assert 1 / len(rates) - 1e-9 <= index <= 1 + 1e-9


@given(RATES, st.floats(0.01, 100))
def test_fairness_does_not_depend_on_the_unit(rates: list[float], speedup: float) -> None:
    assert jain_index([rate * speedup for rate in rates]) == pytest.approx(jain_index(rates))


@pytest.mark.parametrize(
    ("rates", "index"), [([5, 5, 5, 5], 1), ([7, 0, 0, 0], 0.25), ([1, 3], 0.8), ([0, 0], None), ([], None)]
)
def test_fairness_of_known_cases(rates: list[float], index: float | None) -> None:
    assert jain_index(rates) == index


def tally(succeeded: int, *, refused: int = 0, milliseconds: int = 1000, **changes: Any) -> Tally:
    made = Tally(succeeded=succeeded, refused=refused, started=10**9, ended=10**9 + milliseconds * 10**6, **changes)
    for _ in range(succeeded + refused):
        made.latencies.record(10**6)
    return made


def made_row(*tallies: Tally) -> LoadRow:
    return build_row([tallies], AuditVerdict(entries=1), strategy="s", safe=True, guarantee="g")


def test_a_row_sums_up_its_workers() -> None:
    one = tally(60, refused=20, conflicts=5, retried_deadlocks=1)
    two = tally(20, milliseconds=2000, failed_deadlocks=2)
    two.errors["OperationalError (40P01)"] = 2
    made = made_row(one, two)
    assert (made.succeeded, made.refused, made.failed, made.operations) == (80, 20, 2, 102)
    assert (made.conflicts, made.deadlocks, made.retries) == (5, 3, 6)
    assert made.retries_per_operation == 6 / 102
    assert made.seconds == 2.0
    assert made.operations_per_second == 50.0
    assert made.workers == 2
    assert made.fairness == pytest.approx(jain_index([80, 10]))
    assert made.latency_ms.p50 == pytest.approx(1.0, rel=0.008)
    assert made.latency_ms.max == 1.0


def test_a_row_sums_up_its_rounds_and_leaves_out_the_time_between() -> None:
    one, two, late = tally(60), tally(20, milliseconds=2000), tally(40)
    late.started, late.ended = late.started + 60 * 10**9, late.ended + 60 * 10**9
    made = build_row([[one, two], [late, None]], AuditVerdict(entries=1), strategy="s", safe=True, guarantee="g")
    assert (made.workers, made.succeeded, made.seconds) == (2, 120, 3.0)
    assert made.operations_per_second == 40.0
    assert made.fairness == pytest.approx(jain_index([100 / 2, 20 / 2]))


def test_a_row_without_tallies_has_no_figures() -> None:
    made = made_row()
    assert (made.operations, made.operations_per_second, made.fairness, made.latency_ms.p99) == (0, 0.0, None, None)
    assert made.latency_ms.max is None


def test_acknowledged_changes_are_summed_by_account() -> None:
    one, two = Tally(), Tally()
    one.succeed(LoadOperation(perform=int, changes=(("a", Decimal(-5)), ("b", Decimal(5)))))
    two.succeed(LoadOperation(perform=int, changes=(("b", Decimal(2)),)))
    whole = Tally.merge([one, two])
    assert whole.acknowledged == {
        "a": Acknowledged(count=1, total=Decimal(-5)),
        "b": Acknowledged(count=2, total=Decimal(7)),
    }
    assert one.acknowledged["b"] == Acknowledged(count=1, total=Decimal(5))


def test_errors_are_counted_by_kind_with_one_example() -> None:
    made = Tally()
    for message in ("first\nmore", "second"):
        made.fail(ValueError(message))
    assert made.errors == {"ValueError": 2}
    assert made.examples == {"ValueError": "first"}


@pytest.mark.parametrize(
    ("made", "breaks"),
    [
        (row("a"), False),
        (row("a", verdict=LOST), True),
        (row("a", verdict=AuditVerdict(unexpected=1)), True),
        (naive(), False),
        (row("a", verdict=AuditVerdict()), True),
        (row("a", verdict=AuditVerdict(), cut_short=True), False),
    ],
    ids=["right", "lost", "inconsistent", "lost without a claim", "nothing succeeded", "nothing yet"],
)
def test_who_breaks_a_promise(made: LoadRow, breaks: bool) -> None:
    assert made.breaks_promise is breaks
