"""The moves of a run, and the cards of outcomes."""

from typing import Any

import pytest

from django_lockstep.lab.explorer import Exploration, Outcome, Run, Step, explore, replay
from django_lockstep.lab.explorer.moves import Move, moves_of
from django_lockstep.lab.explorer.outcome_cards import outcome_cards
from django_lockstep.lab.explorer.reports import RaceReport, runs_to_draw
from tests.django_lockstep.lab.explorer import stories

UPDATE = "UPDATE t SET a = 1 WHERE id = 1"


def run_of(*sent: tuple[str, str], **facts: Any) -> Run:
    """Return a run in which actors send these statements, each in its only transaction."""
    schedule = "".join(actor for actor, _ in sent)
    steps = [
        Step(actor=actor, begun=number, ended=number, sql=sql, params="", rows=1, transaction=0, **facts.get(sql, {}))
        for number, (actor, sql) in enumerate(sent)
    ]
    return Run(schedule=schedule, preemptions=0, steps=tuple(steps), errors={}, results={}, state="", holds=True)


def last(run: Run) -> Move:
    return list(moves_of(run))[-1]


@pytest.mark.django_db(transaction=True)
def test_a_move_names_the_lock_who_waits_for_it_and_who_is_woken() -> None:
    moves = list(moves_of(replay(stories.raising(stories.locked), "AB")))

    assert "".join(move.letter for move in moves) == "ABAAB B".replace(" ", "")
    first, second, third, commit = moves[:4]
    assert first.step
    assert "FOR UPDATE" in first.step.sql
    assert first.step.source.partition(":")[0].endswith("stories.py")
    assert first.result == "price=100.00"
    assert [*first.held] == ["A"]
    assert "(FOR UPDATE)" in first.held["A"][0]
    assert second.wait.startswith("waits for A on ")
    assert [*second.held] == [*third.held] == ["A"]
    assert commit.woken == ("B",)
    assert [*commit.held] == ["B"]
    assert moves[-1].held == {}


@pytest.mark.django_db(transaction=True)
def test_a_move_shows_the_rows_that_everyone_sees_then() -> None:
    read, written, *_ = moves_of(replay(stories.raising(stories.naive), "AAB", rows=True))

    assert [*read.seen] == [*written.seen] == ["", "A"]
    assert read.seen["A"] == read.seen[""] == written.seen[""]
    assert written.seen["A"] == written.seen[""].replace("price=100.00", "price=110.00").replace("n=1", "n=2")


@pytest.mark.parametrize(
    ("statements", "locked"),
    [
        ([UPDATE], ["t id=1 (UPDATE)"]),
        ([UPDATE, UPDATE], ["t id=1 (UPDATE)"]),
        (["SELECT a FROM t WHERE id = 1"], []),
        (["SELECT a FROM t WHERE id = 1 FOR SHARE"], ["t id=1 (FOR SHARE)"]),
        ([UPDATE, "COMMIT"], []),
        ([UPDATE, "ROLLBACK"], []),
        (['SAVEPOINT "s1"', UPDATE, 'ROLLBACK TO SAVEPOINT "s1"'], []),
        ([UPDATE, 'SAVEPOINT "s1"', "DELETE FROM u", 'ROLLBACK TO SAVEPOINT "s1"'], ["t id=1 (UPDATE)"]),
        ([UPDATE, 'SAVEPOINT "s1"', "DELETE FROM u", 'RELEASE SAVEPOINT "s1"'], ["t id=1 (UPDATE)", "u (DELETE)"]),
    ],
)
def test_rows_are_locked_until_the_end_of_the_transaction_or_savepoint(
    statements: list[str], locked: list[str]
) -> None:
    held = last(run_of(*(("A", sql) for sql in statements))).held
    assert list(held.get("A", ())) == locked


def test_an_error_releases_what_was_locked_since_the_savepoint() -> None:
    broken = "DELETE FROM u"
    assert last(run_of(("A", UPDATE), ("A", broken), **{broken: {"sqlstate": "40P01"}})).held == {}
    sent = [("A", UPDATE), ("A", 'SAVEPOINT "s1"'), ("A", UPDATE.replace("t", "v", 1)), ("A", broken)]
    assert last(run_of(*sent, **{broken: {"sqlstate": "23505"}})).held == {"A": ["t id=1 (UPDATE)"]}


def report_on(scenario: Any) -> RaceReport:
    found = explore(scenario)
    runs = tuple(runs_to_draw(scenario, found))
    serial = tuple(replay(scenario, letter) for letter in "AB")
    return RaceReport(name="seat", exploration=found, runs=runs, serial=serial)


@pytest.mark.django_db(transaction=True)
def test_a_card_says_which_anomaly_it_is_and_whether_a_serial_order_ends_so() -> None:
    wrong, right = outcome_cards(report_on(stories.raising(stories.naive)))
    assert (wrong.outcome.holds, wrong.serial, wrong.anomaly) == (False, False, "lost update")
    assert (right.outcome.holds, right.serial, right.anomaly) == (True, True, "")


def test_what_is_not_known_is_not_said() -> None:
    (outcome,) = (Outcome(errors={}, results={}, state="1", holds=False, count=1, schedule="AB"),)
    facts: dict[str, Any] = dict.fromkeys(("schedules", "redundant", "unsteerable", "yields", "left", "deadlocks"), 0)
    facts |= {"verdict": "broken", "reason": "", "actors": ("A", "B"), "errors": {}, "waits": {}, "seconds": 0.0}
    (card,) = outcome_cards(RaceReport(name="t", exploration=Exploration(outcomes=(outcome,), **facts)))
    assert (card.serial, card.anomaly) == (None, "")
