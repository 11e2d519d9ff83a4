"""Who went on in turn, and who by chance, told by who waited for whom before and after a move."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from django_lockstep.lab.explorer import Scenario, explore
from django_lockstep.lab.explorer.search.branches import Move
from django_lockstep.lab.explorer.search.waits import Waits, first_ones, met_by_chance, overtaken
from django_lockstep.lab.explorer.session import ExplorationSession
from tests.django_lockstep.lab.explorer import stories

A, B, C, D = range(4)


def waits(**others: str) -> Waits:
    return {"ABCD".index(name): frozenset(map("ABCD".index, names)) for name, names in others.items()}


@pytest.mark.parametrize(
    ("after", "in_turn"),
    [
        ({"C": "B"}, True),
        ({}, True),
        ({"B": "A", "C": "AB"}, True),
        ({"B": "C"}, False),
        ({"B": "D", "C": "B"}, True),
    ],
)
def test_who_waited_behind_another_one_does_not_go_on_before_him(after: dict[str, str], in_turn: bool) -> None:
    assert overtaken(waits(B="A", C="AB"), waits(**after)) is not in_turn


@pytest.mark.parametrize(
    ("before", "after", "chance"),
    [
        ({"B": "A", "C": "A"}, {"C": "B"}, True),  # both waited for A, and B was the quicker one
        ({"B": "A", "C": "AB"}, {"C": "B"}, False),  # it was B's turn
        ({"B": "A", "C": "D"}, {"C": "D"}, False),
        ({"B": "A", "C": "D"}, {"B": "C", "C": "D"}, False),  # C has had it all the time
        ({"B": "A", "C": "A"}, {}, False),
    ],
)
def test_waiters_that_race_for_another_lock_meet_by_chance(before: Any, after: Any, chance: bool) -> None:
    assert met_by_chance(waits(**before), waits(**after)) is chance


@pytest.mark.django_db(transaction=True)
def test_a_schedule_is_run_until_waiters_go_on_in_turn(monkeypatch: Any) -> None:
    """As on a machine so busy that they do not for a long time."""
    busy = iter([True] * 25)
    calls = []
    play = ExplorationSession.play

    def often(begun: Mapping[int, int], moves: Sequence[Move]) -> frozenset[int]:
        return frozenset() if bool(begun) and next(busy, False) else first_ones(begun, moves)

    def noted(*args: Any, in_turn: bool, **options: Any) -> Any:
        calls.append(in_turn)
        return play(*args, in_turn=in_turn, **options)

    monkeypatch.setattr("django_lockstep.lab.explorer.driver.move_builder.first_ones", often)
    monkeypatch.setattr(ExplorationSession, "play", noted)
    scenario = Scenario(set_up=stories.one_seat, actors=[stories.locked] * 3, observe=stories.price)
    result = explore(scenario, warm_up=False)

    assert (result.verdict, result.unsteerable, len(result.outcomes)) == ("holds", 0, 1), result.reason
    assert next(busy, None) is None
    assert all(calls), "any order was allowed before the waiters went on in turn"
