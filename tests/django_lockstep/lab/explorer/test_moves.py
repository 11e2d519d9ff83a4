"""The moves of a run, and the cards of outcomes."""

from typing import Any

import pytest

from django_lockstep.lab.explorer import Exploration, Outcome, explore, replay
from django_lockstep.lab.explorer.explore import runs_to_draw
from django_lockstep.lab.explorer.render.moves import moves_of, outcome_cards
from django_lockstep.lab.explorer.render.reports import RaceReport
from tests.django_lockstep.lab.explorer import stories


@pytest.mark.django_db(transaction=True)
def test_a_move_names_the_lock_who_waits_for_it_and_who_is_woken() -> None:
    moves = list(moves_of(replay(stories.raising(stories.locked), "AB", rows=True)))

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
    assert second.held == first.held
    assert commit.woken == ("B",)
    assert [*commit.held] == ["B"]
    assert moves[-1].held == {}


@pytest.mark.django_db(transaction=True)
def test_a_move_shows_the_rows_that_everyone_sees_then() -> None:
    read, written, *_ = moves_of(replay(stories.raising(stories.naive), "AAB", rows=True))

    assert [*read.seen] == [*written.seen] == ["", "A"]
    assert read.seen["A"] == read.seen[""] == written.seen[""]
    assert written.seen["A"] == written.seen[""].replace("price=100.00", "price=110.00").replace("n=1", "n=2")


def report_on(scenario: Any) -> RaceReport:
    result = explore(scenario)
    runs = tuple(runs_to_draw(scenario, result))
    serial = tuple(replay(scenario, letter) for letter in "AB")
    return RaceReport(name="seat", exploration=result, runs=runs, serial=serial)


@pytest.mark.django_db(transaction=True)
def test_a_card_says_which_anomaly_it_is_and_whether_a_serial_order_ends_so() -> None:
    wrong, right = outcome_cards(report_on(stories.raising(stories.naive)))
    assert (wrong["outcome"].holds, wrong["serial"], wrong["anomaly"]) == (False, False, "lost update")
    assert (right["outcome"].holds, right["serial"], right["anomaly"]) == (True, True, "")


def test_what_is_not_known_is_not_said() -> None:
    (outcome,) = (Outcome(errors={}, results={}, state="1", holds=False, count=1, schedule="AB"),)
    values: dict[str, Any] = dict.fromkeys(("schedules", "redundant", "unsteerable", "yields", "left", "deadlocks"), 0)
    values |= {"verdict": "broken", "reason": "", "actors": ("A", "B"), "errors": {}, "waits": {}, "seconds": 0.0}
    (card,) = outcome_cards(RaceReport(name="t", exploration=Exploration(outcomes=(outcome,), **values)))
    assert (card["serial"], card["anomaly"]) == (None, "")
