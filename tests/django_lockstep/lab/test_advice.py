from decimal import Decimal

from django_lockstep.lab.simulator.advice import advice_on_load
from django_lockstep.lab.simulator.audit import AuditVerdict
from tests.django_lockstep.lab.sample_rows import LOST, naive, row


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


def test_a_counterpart_that_breaks_its_promise_is_named() -> None:
    first, *_ = advice_on_load([row("a")], [row("a", engine="compiled", verdict=LOST)])
    assert first.startswith("a, with the compiled engine, claims to be safe, but lost 812 of 1,000 updates")


def test_the_only_one_is_called_so() -> None:
    assert (
        advice_on_load([row("a")])[0] == "For this load use a: 100/s, p99 10.0 ms, the only one measured that is right."
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


def test_unprotected_ones_only() -> None:
    advice = advice_on_load([naive()])
    assert advice[0].startswith("Use none of these: all of them are unprotected.")


def test_no_safe_one_was_right() -> None:
    advice = advice_on_load([row("liar", verdict=LOST)])
    assert advice[1].startswith("No strategy that claims to be safe proved correct")


def test_nothing_measured_nothing_said() -> None:
    assert advice_on_load([]) == ()


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
