"""The moves of a run, and the cards of outcomes."""

from typing import Any

import pytest

from django_lockstep.lab.explorer import Exploration, Outcome, replay
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


def test_what_is_not_known_is_not_said() -> None:
    (outcome,) = (Outcome(errors={}, results={}, state="1", holds=False, count=1, schedule="AB"),)
    values: dict[str, Any] = dict.fromkeys(("schedules", "redundant", "unsteerable", "yields", "left", "deadlocks"), 0)
    values |= {"verdict": "broken", "reason": "", "actors": ("A", "B"), "errors": {}, "waits": {}, "seconds": 0.0}
    (card,) = outcome_cards(RaceReport(name="t", exploration=Exploration(outcomes=(outcome,), **values)))
    assert (card["serial"], card["anomaly"]) == (None, "")
