"""Exploring on a real server: verdicts, schedules, waits, deadlocks, and what is left behind."""

import json
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from django_lockstep.lab.explorer import NotExplorable, Run, Scenario, ScheduleError, explore, replay
from django_lockstep.lab.explorer.driver import controller
from django_lockstep.locking import StaleVersionError, retry_on_conflict, retrying
from tests.django_lockstep.lab.explorer import stories
from tests.testapps.shop.models import PlainSeat, Seat

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("nothing_stays")]


def test_a_lost_update_is_found_with_its_simplest_schedule() -> None:
    result = explore(stories.raising(stories.naive))

    assert result.verdict == "broken"
    assert result.schedules <= 10
    assert result.failure is not None
    assert result.failure.preemptions == 1
    assert result.failure.schedule == "AABBAB"
    assert result.failure.state == "110.00"
    assert "AABBAB" in result.reason


@pytest.mark.parametrize("actor", [stories.locked, stories.optimistic, stories.computed, stories.serializable])
def test_what_is_right_holds(actor: stories.Actor) -> None:
    result = explore(stories.raising(actor))

    assert (result.verdict, result.left, [o.state for o in result.outcomes]) == ("holds", 0, ["120.00"])


def test_retries_are_counted_and_do_not_pause(settings: Any) -> None:
    settings.LOCKSTEP_RETRY_WAITS = True
    told = []

    @retry_on_conflict(attempts=2, wait_initial=3600, wait_max=3600)
    def refused(pk: int) -> None:
        raise StaleVersionError

    def listen(**options: Any) -> None:
        told.append((options["attempt"], options["wait"]))

    retrying.connect(listen)
    result = explore(stories.raising(refused))
    retrying.disconnect(listen)

    assert [dict(outcome.errors) for outcome in result.outcomes] == [dict.fromkeys("AB", "RetriesExhausted")]
    assert set(told) == {(1, 0.0)}


def test_reduction_leaves_out_what_only_swaps_independent_steps() -> None:
    scenario = Scenario(
        set_up=stories.two_seats, actors=[lambda pks: stories.naive(pks[0]), lambda pks: stories.naive(pks[1])]
    )

    assert explore(scenario).schedules == 1
    assert explore(scenario, reduction="none").schedules == 20


def test_deadlocks_are_reported_with_their_cycle_and_the_last_to_wait_loses() -> None:
    result = explore(stories.opposite_transfers())

    assert result.verdict == "holds"  # the victim raised, the other one is a serial order of its own
    assert result.deadlocks == result.errors["40P01"] > 0
    run = replay(stories.opposite_transfers(), "ABAB")
    (deadlock,) = run.deadlocks
    assert (deadlock.actors, deadlock.victim) == (("A", "B"), "B")
    assert "A waits for ShareLock on transaction" in deadlock.detail
    assert run.errors == {"B": "40P01"}


@pytest.mark.slow
def test_who_may_not_set_the_deadlock_timeout_is_told_that_the_victim_may_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(controller, "OTHERS_LOSE", "nothing that a server takes")  # as it refuses other roles

    told = explore(stories.opposite_transfers(), no_deadlock=True, stop_on_first=True)
    untold = explore(stories.raising(stories.locked))

    assert "GRANT SET ON PARAMETER deadlock_timeout TO that role" in told.reason
    assert "deadlock_timeout" not in untold.reason


def test_a_wait_names_the_actor_the_row_and_what_ended_it() -> None:
    run = replay(stories.raising(stories.locked), "ABAA")

    waited = next(step for step in run.steps if step.waited_for)
    assert (waited.actor, waited.waited_for, waited.woken_by) == ("B", ("A",), "A")
    assert waited.waited_on.startswith("shop_seat id=")
    assert (waited.begun, waited.ended) == (1, 3)
    assert waited.values[0]["price"] == "110.00"


def test_a_schedule_is_replayed_step_by_step() -> None:
    scenario = stories.raising(stories.naive)

    run = replay(scenario, "ABABAB")

    assert run.schedule == "ABABAB"
    assert [step.actor for step in run.steps] == list("ABABAB")
    assert [step.sql.split()[0] for step in run.steps] == ["SELECT", "SELECT", "UPDATE", "UPDATE", "COMMIT", "COMMIT"]
    assert not run.holds
    assert replay(scenario, "ABABAB").to_dict() == run.to_dict()


@pytest.mark.parametrize(("schedule", "complaint"), [("AXB", "'X' at step 2"), ("ABB", "Step 3 is B, which")])
def test_a_schedule_that_does_not_fit_is_refused(schedule: str, complaint: str) -> None:
    with pytest.raises(ScheduleError, match=complaint):
        replay(stories.raising(stories.locked), schedule)


def test_limits_make_it_incomplete_and_never_right() -> None:
    scenario = stories.raising(stories.serializable)

    limits: list[dict[str, Any]] = [{"max_schedules": 3}, {"timeout": 0.0}]
    for limited in (explore(scenario, **limit) for limit in limits):
        assert limited.verdict == "incomplete"
        assert limited.left > 0
    assert explore(scenario, max_schedules=3).schedules == 3


def test_the_first_wrong_run_may_end_the_search() -> None:
    result = explore(stories.raising(stories.naive), stop_on_first=True)

    assert result.verdict == "broken"
    assert result.left > 0


def test_the_first_run_of_some_kind_may_end_the_search() -> None:
    replayed: list[Run] = []

    def is_second(run: Run) -> bool:
        replayed.append(run)
        return len(replayed) == 2

    result = explore(stories.raising(stories.naive), stop_on_first=is_second)

    assert len(replayed) == result.schedules == 2
    assert result.left > 0


def test_actors_are_named_by_the_mapping() -> None:
    scenario = Scenario(
        set_up=stories.one_seat, actors={"reader": stories.price, "writer": stories.naive}, observe=stories.price
    )

    result = explore(scenario)

    assert result.actors == ("reader", "writer")
    assert {outcome.results["reader"] for outcome in result.outcomes} == {"100.00", "110.00"}


def test_results_are_json_with_a_schema_version() -> None:
    report = json.loads(explore(stories.raising(stories.naive)).to_json())

    assert report["schema_version"] == 3
    assert report["failure"]["steps"][0]["actor"] == "A"
    assert json.loads(replay(stories.raising(stories.naive), "").to_json())["schema_version"] == 3


# What goes wrong


def test_the_errors_of_set_up_pass() -> None:
    def set_up() -> None:
        raise IntegrityError("no")

    with pytest.raises(IntegrityError, match="no"):
        explore(Scenario(set_up=set_up, actors=[stories.naive]))


def test_rows_and_sequences_are_put_back() -> None:
    kept = Seat.objects.create(guest="Ada", price=1)
    before = list(Seat.objects.values())

    explore(stories.raising(stories.naive))

    assert list(Seat.objects.values()) == before
    assert Seat.objects.create().pk == kept.pk + 1


def test_a_table_too_large_is_said_and_what_was_written_before_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def locks_and_writes_elsewhere(pk: int) -> None:
        with transaction.atomic():
            Seat.objects.filter(pk=pk).update(price=2)
            PlainSeat.objects.create()

    monkeypatch.setattr("django_lockstep.lab.explorer.tables.saved_tables.MOST_ROWS", 1)
    PlainSeat.objects.bulk_create([PlainSeat(), PlainSeat()])
    with pytest.raises(NotExplorable, match=r"shop_plainseat has more than 1 rows"):
        explore(Scenario(set_up=stories.one_seat, actors=[locks_and_writes_elsewhere] * 2))
    assert not Seat.objects.exists()


def test_an_open_transaction_is_refused_with_the_way_out() -> None:
    with transaction.atomic(), pytest.raises(NotExplorable, match="transaction=True"):
        explore(stories.raising(stories.naive))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"reduction": "some"}, "reduction must be .*, not 'some'"),
        ({"audit": -1}, "audit must be a number of random walks, 0 or more, not -1"),
        ({"processes": 0}, "processes must be a positive integer, not 0"),
        ({"directed": True, "reduction": "none"}, "cannot be combined with reduction='none'"),
        ({"directed": True, "processes": 2}, "A directed search .* runs in one process, not in 2"),
        ({"directed": True, "cluster": "tcp://x:1"}, "A directed search .* not on a cluster"),
        ({"processes": 2, "cluster": "tcp://x:1"}, "processes=2 explore on this machine, and cluster='tcp://x:1' else"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        explore(stories.raising(stories.naive), **options)


def test_changed_sessions_do_not_reach_the_next_run() -> None:
    def careless(pk: int) -> str:
        with connection.cursor() as cursor:
            cursor.execute("SHOW statement_timeout")
            (before,) = cursor.fetchone()
            cursor.execute("SET statement_timeout = '59s'")
        assert before != "59s"
        return str(before)

    result = explore(Scenario(set_up=stories.one_seat, actors=[careless] * 2, invariant=bool))

    assert {tuple(outcome.errors) for outcome in result.outcomes} == {()}
