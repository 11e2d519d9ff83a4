"""Long runs, in which what matters to no other actor is folded."""

from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from django_lockstep.lab.explorer import Run, Scenario, Step, replay, svg, timeline
from django_lockstep.lab.explorer.render.timelines import find_folds, fitting_width
from tests.django_lockstep.lab.explorer import stories
from tests.testapps.shop.models import PlainSeat, Turnstile


def long_run(*marked: int, steps: int = 50, actors: str = "A", waiting: bool = False) -> Run:
    """Return a run of statements that concern no other actor, save for the marked ones, and one that waits."""
    run_steps = [
        Step(
            actor=actors[number % len(actors)],
            begun=number,
            ended=number,
            sql=f'SELECT 1 FROM "site_{number % 2}"',
            params="",
            source=f"shop/views.py:{number + 1}",
            shared=number in marked,
        )
        for number in range(steps)
    ]
    if waiting:
        run_steps[20] = replace(run_steps[20], ended=45, shared=True, waited_for=("B",), woken_by="B")
    schedule = "".join(step.actor for step in run_steps)
    return Run(schedule=schedule, preemptions=0, steps=tuple(run_steps), errors={}, results={}, state="", holds=True)


def folded(run: Run) -> list[tuple[int, int]]:
    return [(fold.moves[0], fold.moves[-1]) for fold in find_folds(run).values()]


def test_what_concerns_no_other_actor_is_folded_around_what_does() -> None:
    assert folded(long_run(10, 11, 30)) == [(0, 9), (12, 29), (31, 49)]


def test_short_runs_and_single_statements_are_not_folded() -> None:
    assert folded(long_run(steps=16)) == []
    assert folded(long_run(1, 3, steps=17)) == [(4, 16)]


def test_steps_of_different_actors_are_not_folded_together() -> None:
    assert folded(long_run(actors="AB")) == []


def test_a_step_in_which_a_wait_ends_is_shown() -> None:
    assert folded(long_run(waiting=True)) == [(0, 19), (21, 44), (46, 49)]


def test_a_failed_step_is_shown() -> None:
    run = long_run()
    steps = (*run.steps[:7], replace(run.steps[7], sqlstate="55P03"), *run.steps[8:])

    assert folded(replace(run, steps=steps)) == [(0, 6), (8, 49)]


def test_a_fold_is_one_line_and_steps_have_their_lines_of_code_beside_them() -> None:
    run = long_run(10)
    drawn = timeline(run, width=80).splitlines()

    assert drawn[3].split(maxsplit=1) == ["1", "10 more statements: SELECT site_0, SELECT site_1"]
    assert drawn[4].split() == ["11", "SELECT", "site_0", "shop/views.py:11"]
    assert drawn[5].startswith("  12")
    assert "step 11 line" not in timeline(run)


def test_lines_of_code_are_within_the_terminal() -> None:
    run = long_run(10, actors="AB")

    assert fitting_width(150, run) == (150 - 6 - len("shop/views.py:50")) // 2


def test_a_drawing_has_one_bar_for_a_fold_and_the_numbers_of_the_steps() -> None:
    drawn = svg(long_run(10))
    texts = [element.text for element in ET.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")]  # noqa: S314

    assert {"1", "11", "12"} <= set(texts)
    assert "2" not in texts
    assert "10 more statements: SELECT site_0, SELECT site_1" in " ".join(filter(None, texts))
    assert drawn.count("SELECT 1 FROM") == 50, "in the tooltips"


def reads_much(pk: int) -> None:
    """Read much that nobody writes, and raise the price."""
    for _ in range(12):
        PlainSeat.objects.count()
    stories.naive(pk)


def writes_much(pk: int) -> None:
    """Write rows that nobody else reads, and raise the price."""
    for number in range(30):
        Turnstile.objects.create(passages=number)
    stories.naive(pk)


@pytest.mark.django_db(transaction=True)
def test_only_what_another_actor_touches_is_shared() -> None:
    run = replay(Scenario(set_up=stories.one_seat, actors=[reads_much] * 2, invariant=lambda pk: False), "")

    assert len(run.steps) == 30
    assert {step.shared for step in run.steps if "plainseat" in step.sql} == {False}
    assert {step.shared for step in run.steps if "plainseat" not in step.sql} == {True}


@pytest.mark.django_db(transaction=True)
def test_a_long_race_is_folded() -> None:
    run = replay(Scenario(set_up=stories.one_seat, actors=[reads_much, writes_much], invariant=lambda pk: False), "")

    assert "12 more statements: SELECT shop_plainseat" in timeline(run, width=60)
    assert "30 more statements: INSERT shop_turnstile" in timeline(run, width=60)


def test_what_was_wrong_is_looked_for_in_hundreds_of_steps() -> None:
    read, write = "SELECT price FROM shop_{} WHERE id = %s", "UPDATE shop_{} SET price = 1 WHERE id = %s"
    run = long_run(steps=480, actors="A" * 120 + "B" * 120)
    steps = [
        replace(step, sql=(read, read, write)[number % 3].format(step.actor), arguments=(str(number),), transaction=0)
        for number, step in enumerate(run.steps)
    ]
    # Within the limit of every test: each pair of them is looked at.
    assert timeline(replace(run, steps=tuple(steps), holds=False)).endswith("unexplained")
