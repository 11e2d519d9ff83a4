import json
import math
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_lockstep.lab.simulator.advice import advice_on_load
from django_lockstep.lab.simulator.audit import AuditVerdict
from django_lockstep.lab.simulator.render import as_json, as_table
from django_lockstep.lab.simulator.report import LoadRow, build_row, jain_index
from django_lockstep.lab.simulator.tally import Acknowledged, Histogram, LoadOperation, Tally
from tests.django_lockstep.lab.sample_rows import ENVIRONMENT, LOST, load_report, naive, row

LOAD = load_report(naive(), row("pessimistic_nowait", errors={"OperationalError (40P01)": 3}))


def test_json_of_a_load() -> None:
    data = json.loads(as_json(LOAD))
    assert data["schema_version"] == 2
    assert data["kind"] == "load"
    assert data["plan"]["workers"] == 8
    assert data["plan"]["mix"] == "1:1:0"
    assert data["interrupted"] is None
    assert data["advice"] == list(LOAD.advice)
    first, second = data["strategies"]
    assert (first["strategy"], first["verdict"], first["lost_updates"], first["money_lost"]) == (
        "naive",
        "lost",
        812,
        "3212.50",
    )
    assert second["latency_ms"] == {"p50": 1.5, "p95": 5.0, "p99": 10.0, "max": 123.4}
    assert second["errors"] == {"OperationalError (40P01)": 3}


def test_a_table_fits_into_80_columns_and_plain_characters() -> None:
    text = as_table(LOAD)
    assert max(map(len, text.splitlines())) <= 80
    assert text.isascii()
    assert "\x1b" not in text
    assert "\x1b[1;31mLOST" in as_table(LOAD, colour=True)


def line_of(text: str, beginning: str) -> list[str]:
    return next(line.split() for line in text.splitlines() if line.startswith(beginning))


def test_a_table_shows_verdict_loss_rate_and_latencies() -> None:
    text = as_table(LOAD)
    assert line_of(text, "naive") == ["naive", "LOST", "812", "3,212.50", "100", "1.5", "5.0", "10.0"]
    assert line_of(text.partition("Retries/op")[2], "naive")[1] == "123"
    assert line_of(text, "pessimistic_nowait")[1:3] == ["correct", "0"]
    assert "naive lost 812 of 1,000 updates and left the balance wrong by 3,212.50." in text
    assert "pessimistic_nowait: 3 x OperationalError (40P01):" in text
    assert text.index("Which should I use?") < text.index("- For this load use pessimistic_nowait")


def test_figures_are_never_cut_off() -> None:
    huge = AuditVerdict(entries=10**8, overwritten=10**8 - 1, money_lost=Decimal("1234567890.12"))
    slow: Any = {"latencies": {50: 123456.0, 95: 234567.0}, "p99": 345678.0, "largest": 456789.0}
    text = as_table(load_report(naive(verdict=huge, rate=1234567.0, **slow)))
    assert line_of(text, "naive")[2:] == [
        "99,999,999",
        "1,234,567,890.12",
        "1,234,567",
        "123,456",
        "234,567",
        "345,678",
    ]
    assert line_of(text.partition("Retries/op")[2], "naive")[1] == "456,789"


def test_what_went_otherwise_is_said() -> None:
    cut = row(
        "a",
        cut_short=True,
        worker_failures=("worker 3 was killed by SIGKILL",),
        verdict=replace(LOST, without_acknowledgements=True),
    )
    text = as_table(
        load_report(
            cut, row("b", verdict=AuditVerdict()), interrupted="SIGINT", planned=("a", "b", "c"), notes=("Kept.",)
        )
    )
    text += as_table(load_report(row("a"), environment={**ENVIRONMENT, "isolation": "serializable"}))
    for words in (
        "PostgreSQL 18.4 (serializable)",
        "a: interrupted after 3.0 s.",
        "a: worker 3 was killed by SIGKILL",
        "so the verdict is from the",
        "b: no operation succeeded",
        "Interrupted by SIGINT: 2 of 3 strategies were measured.",
        "Kept.",
    ):
        assert words in text


# What the figures of a row are


RATES = st.lists(st.floats(0.001, 1000), min_size=1, max_size=64)


@given(RATES, st.floats(0.01, 100))
def test_fairness_is_between_one_nth_and_one_in_whatever_unit(rates: list[float], speedup: float) -> None:
    index = jain_index(rates)
    assert index is not None
    assert 1 / len(rates) - 1e-9 <= index <= 1 + 1e-9
    assert jain_index([rate * speedup for rate in rates]) == pytest.approx(index)


@pytest.mark.parametrize(
    ("rates", "index"), [([5, 5, 5, 5], 1), ([7, 0, 0, 0], 0.25), ([1, 3], 0.8), ([0, 0], None), ([], None)]
)
def test_fairness_of_known_cases(rates: list[float], index: float | None) -> None:
    assert jain_index(rates) == index


def tally(succeeded: int, *, refused: int = 0, milliseconds: int = 1000, **changes: Any) -> Tally:
    result = Tally(succeeded=succeeded, refused=refused, started=10**9, ended=10**9 + milliseconds * 10**6, **changes)
    for _ in range(succeeded + refused):
        result.latencies.record(10**6)
    return result


def made_row(*tallies: Tally) -> LoadRow:
    return build_row([tallies], AuditVerdict(entries=1), strategy="s", safe=True)


def test_a_row_sums_up_its_workers() -> None:
    first = tally(60, refused=20, conflicts=5, retried_deadlocks=1)
    second = tally(20, milliseconds=2000, failed_deadlocks=2)
    second.errors["OperationalError (40P01)"] = 2
    result = made_row(first, second)
    whole = result.tally
    assert (whole.succeeded, whole.refused, whole.failed, whole.operations) == (80, 20, 2, 102)
    assert (whole.conflicts, whole.deadlocks, whole.retries) == (5, 3, 6)
    assert whole.retries_per_operation == 6 / 102
    assert (whole.seconds, whole.rate) == (2.0, 50.0)
    assert result.workers == 2
    assert result.fairness == pytest.approx(jain_index([80, 10]))
    assert result.latency_ms["p50"] == pytest.approx(1.0, rel=0.008)
    assert result.latency_ms["max"] == 1.0


def test_a_row_sums_up_its_rounds_and_leaves_out_the_time_between() -> None:
    first, second, late = tally(60), tally(20, milliseconds=2000), tally(40)
    late.started, late.ended = late.started + 60 * 10**9, late.ended + 60 * 10**9
    result = build_row([[first, second], [late, None]], AuditVerdict(entries=1), strategy="s", safe=True)
    assert (result.workers, result.tally.succeeded, result.tally.seconds) == (2, 120, 3.0)
    assert result.tally.rate == 40.0
    assert result.fairness == pytest.approx(jain_index([100 / 2, 20 / 2]))


def test_a_row_without_tallies_has_no_figures() -> None:
    result = made_row()
    assert (result.tally.operations, result.tally.rate, result.fairness) == (0, 0.0, None)
    assert result.latency_ms == dict.fromkeys(("p50", "p95", "p99", "max"))


def test_acknowledged_changes_are_summed_by_account() -> None:
    first, second = Tally(), Tally()
    first.succeed(LoadOperation(perform=int, changes=(("a", Decimal(-5)), ("b", Decimal(5)))))
    second.succeed(LoadOperation(perform=int, changes=(("b", Decimal(2)),)))
    whole = Tally.merge([first, second])
    assert whole.acknowledged == {
        "a": Acknowledged(count=1, total=Decimal(-5)),
        "b": Acknowledged(count=2, total=Decimal(7)),
    }
    assert first.acknowledged["b"] == Acknowledged(count=1, total=Decimal(5))


def test_errors_are_counted_by_kind_with_one_example() -> None:
    result = Tally()
    for message in ("first\nmore", "second"):
        result.fail(ValueError(message))
    assert result.errors == {"ValueError": 2}
    assert result.examples == {"ValueError": "first"}


@pytest.mark.parametrize(
    ("result", "breaks"),
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
def test_who_breaks_a_promise(result: LoadRow, breaks: bool) -> None:
    assert result.breaks_promise is breaks


# What is advised


def test_the_fastest_that_is_right_is_named() -> None:
    advice = advice_on_load([naive(rate=2000.0), row("slow", rate=500.0), row("quick", rate=1000.0, p99=8.1)])
    assert advice == (
        "For this load use quick: 1,000/s, p99 8.1 ms, the fastest of the 2 that are right.",
        "naive lost 812 of 1,000 updates and left the balance wrong by 3,212.50.",
    )


def test_among_the_equally_fast_the_shortest_tail_wins() -> None:
    advice = advice_on_load([row("a", rate=1000.0, p99=90.0), row("b", rate=950.0, p99=20.0), row("c", rate=100.0)])
    assert (
        advice[0]
        == "For this load use b: 950/s, p99 20.0 ms, the shortest p99 among the fastest of the 3 that are right."
    )


def test_a_broken_promise_comes_first_and_is_not_recommended() -> None:
    advice = advice_on_load([row("liar", rate=9000.0, verdict=LOST), row("honest")])
    assert advice[0] == (
        "liar claims to be safe, but lost 812 of 1,000 updates and left the balance wrong by 3,212.50: do not use it."
    )
    assert advice[1].startswith("For this load use honest")


def test_luck_is_no_recommendation() -> None:
    advice = advice_on_load([naive(rate=9000.0, verdict=AuditVerdict(entries=5)), row("a")])
    assert advice[0].startswith("For this load use a:")
    assert "naive came out right this time, but nothing guarantees it: more load would show." in advice


def test_little_to_choose_from() -> None:
    only = "For this load use a: 100/s, p99 10.0 ms, the only one measured that is right."
    assert advice_on_load([]) == ()
    assert advice_on_load([row("a")])[0] == only
    assert advice_on_load([naive()])[0].startswith("Use none of these: all of them are unprotected.")
    unproved = advice_on_load([row("liar", verdict=LOST)])[1]
    assert unproved.startswith("No strategy that claims to be safe proved correct")


def test_other_ways_of_being_wrong() -> None:
    for verdict, words in (
        (
            AuditVerdict(entries=9, overdrawn_accounts=1, overdrawn_by=Decimal(70)),
            "paid out 70.00 more than was covered",
        ),
        (AuditVerdict(entries=9, unexpected=2), "left 2 entries of changes that were not acknowledged"),
        (AuditVerdict(entries=9, broken_links=3), "left 3 entries whose balance does not follow from the one before"),
    ):
        assert f"x claims to be safe, but {words}: do not use it." in advice_on_load([row("x", verdict=verdict)])


# Latencies, each in a bucket


VALUES = st.lists(st.one_of(st.integers(0, 300), st.integers(0, 10**13)), min_size=1, max_size=200)


def histogram(values: list[int]) -> Histogram:
    result = Histogram()
    for value in values:
        result.record(value)
    return result


@given(VALUES, st.sampled_from([0.1, 1, 50, 95, 99, 99.9, 100]))
def test_percentiles_are_close_to_the_exact_ones(values: list[int], percent: float) -> None:
    exact = sorted(values)[max(1, math.ceil(len(values) * percent / 100)) - 1]
    estimate = histogram(values).percentile(percent)
    assert estimate is not None
    assert abs(estimate - exact) <= exact * 0.008


@given(VALUES, VALUES)
def test_adding_is_recording_all_and_the_largest_is_exact(left: list[int], right: list[int]) -> None:
    whole = histogram(left)
    whole.add(histogram(right))
    assert whole == histogram(left + right)
    assert whole.largest == max(left + right)
    assert whole.counts.total() == len(left + right)


def test_small_values_are_exact_and_none_have_no_percentile() -> None:
    assert [histogram([value]).percentile(50) for value in range(128)] == list(range(128))
    assert Histogram().percentile(50) is None


def test_memory_does_not_grow_with_the_number_of_values() -> None:
    result = histogram(list(range(1, 300_000, 7)))
    assert len(result.counts) <= 64 * (300_000).bit_length()
