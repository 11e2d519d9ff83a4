"""Runs as people read them."""

import inspect
from typing import Any
from uuid import uuid4

import pytest
import rich
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F, Model
from rich.cells import cell_len

from django_lockstep.lab.explorer import Run, Scenario, Step, explore, replay, svg, timeline
from django_lockstep.lab.explorer.effects.operations import shown_path
from django_lockstep.lab.explorer.render.timelines import fitting_width
from tests.django_lockstep.lab.explorer import stories
from tests.testapps.shop.models import PlainSeat, Seat

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_line_of_an_installed_package_begins_with_the_package() -> None:
    assert shown_path(rich.__file__) == "rich/__init__.py"
    assert shown_path(__file__).startswith("tests/")


def test_a_lost_update_is_drawn_and_named() -> None:
    failure = explore(stories.raising(stories.naive)).failure
    assert failure is not None

    drawn = timeline(failure).splitlines()

    assert drawn[0] == "schedule AABBAB, WRONG"
    assert drawn[1].split() == ["step", "A", "B"]
    assert "┌ SELECT shop_seat id=" in drawn[3]
    assert "│ → price=100.00" in drawn[4]
    assert drawn[-2].startswith("lost update: ")
    assert drawn[-1].startswith("To prevent it: lock the row before reading it")
    (marked,) = [line for line in drawn if "▲ here it breaks: lost update" in line]
    assert marked.index("▲") > 44, "B's column is to the right of A's"


def test_waits_name_the_actors_waited_for_and_what_ended_them() -> None:
    drawn = timeline(replay(stories.raising(stories.locked), "ABAA"))

    assert "┆ waits for A on shop_seat id=" in drawn
    assert "┆ woken by A" in drawn
    assert "→ price=110.00" in drawn
    (moved,) = [line for line in drawn.splitlines() if "UPDATE shop_seat" in line and "│ ┆" in line]
    assert moved.index("UPDATE") < moved.index("┆"), "a wait is drawn while others move"


def test_transactions_have_a_beginning_and_an_end() -> None:
    drawn = timeline(replay(stories.raising(stories.naive), "AAABBB"))

    assert drawn.count("┌ SELECT") == drawn.count("└ COMMIT") == 2


def test_a_deadlock_is_drawn_with_its_error() -> None:
    drawn = timeline(replay(stories.opposite_transfers(), "ABAB"))

    assert "→ error 40P01" in drawn
    assert "▲ deadlock, ended here" in drawn


def test_what_was_raised_is_reported_with_its_message_and_line() -> None:
    def sold_out(pk: int) -> None:
        Seat.objects.filter(pk=pk).update(price=1)
        raise LookupError("no seat left")

    run = replay(Scenario(set_up=stories.one_seat, actors=[sold_out, stories.naive]), "")

    assert str(run.raised["A"]).startswith("LookupError: no seat left (at tests/")
    assert "A raised LookupError: no seat left (at tests/django_lockstep/lab/explorer/test_timelines.py:" in timeline(
        run
    )


def test_steps_name_the_line_of_code_that_sent_them() -> None:
    run = replay(stories.raising(stories.naive), "")

    assert {step.source.rpartition(":")[0] for step in run.steps} == {"tests/django_lockstep/lab/explorer/stories.py"}
    assert "A in tests/django_lockstep/lab/explorer/stories.py: step 1 line " in timeline(run)


def test_a_function_that_hides_in_tracebacks_is_not_the_line_that_is_shown() -> None:
    def locked(pk: int) -> None:
        __tracebackhide__ = True
        Seat.objects.filter(pk=pk).update(price=F("price") + 1)

    def caller(pk: int) -> None:
        locked(pk)

    run = replay(Scenario(set_up=stories.one_seat, actors=[caller]), "A")
    (line,) = {step.source.rpartition(":")[2] for step in run.steps if step.sql.startswith("UPDATE")}
    assert int(line) == inspect.getsourcelines(caller)[1] + 1


def test_of_a_models_own_save_the_line_of_its_caller_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def save(self: PlainSeat, **options: Any) -> None:
        Model.save(self, **options)

    def caller(pk: int) -> None:
        PlainSeat(price=pk).save()

    monkeypatch.setattr(PlainSeat, "save", save)
    run = replay(Scenario(set_up=stories.one_seat, actors=[caller]), "A")
    (step,) = run.steps
    assert int(step.source.rpartition(":")[2]) == inspect.getsourcelines(caller)[1] + 1


def test_a_long_statement_is_folded_and_not_cut() -> None:
    def lock_all(pk: int) -> None:
        with transaction.atomic():
            list(Seat.objects.filter(row="A", guest="", price__gte=0).select_for_update(no_key=True))

    drawn = timeline(replay(Scenario(set_up=stories.one_seat, actors=[lock_all, lock_all]), ""))

    assert "UPDATE" in drawn.replace("\n", " ")
    assert "…" not in drawn.partition("┌│└")[0]


def test_columns_are_as_wide_as_the_terminal_allows() -> None:
    run = replay(stories.raising(stories.naive), "")

    assert (fitting_width(200, run), fitting_width(80, run)) == (97, 44)


def test_names_of_actors_have_their_letters() -> None:
    scenario = Scenario(set_up=stories.one_seat, actors={"reader": stories.price, "B": stories.naive})

    assert timeline(replay(scenario, "")).splitlines()[1].split() == ["step", "A:", "reader", "B"]


# Secrets


def sign_up(fixture: object) -> None:
    user = User.objects.create_user("ada", password="correct horse", last_name="battery")
    User.objects.filter(password=user.password).update(first_name=user.password[:150])


def test_secrets_are_masked_wherever_they_stand(settings: Any) -> None:
    settings.LOCKSTEP_LAB_SECRETS = ["last_name"]
    run = replay(Scenario(set_up=lambda: None, actors=[sign_up], invariant=lambda fixture: False), "")

    for text in (timeline(run), run.to_json(), svg(run)):
        assert "pbkdf2" not in text
        assert "md5$" not in text
        assert "battery" not in text
    assert "password=***" in timeline(run)
    assert "username" in run.to_json()


def test_secrets_that_an_end_lacks_are_masked() -> None:
    def sign_up_next(fixture: object) -> None:
        number = User.objects.count()
        User.objects.create(username=str(uuid4()), password=f"password {number}")

    result = explore(Scenario(set_up=lambda: None, actors=[sign_up_next] * 2))

    assert result.failure is not None
    assert "auth_user: password ***1 instead of ***2" in str(result.failure.differences)


def strange_run(sql: str) -> Run:
    step = Step(actor="A", begun=0, ended=0, sql=sql, params="")
    return Run(schedule="A", preemptions=0, steps=(step,), errors={}, results={}, state=sql, holds=True)


@pytest.mark.parametrize("sql", ["SELECT\n\x1b[31m 1", "SELECT '検索検索検索'" * 20, "x" * 500])
def test_no_statement_leaves_its_column(sql: str) -> None:
    drawn = timeline(strange_run(sql), width=40).splitlines()

    assert "\x1b" not in "".join(drawn)
    assert cell_len(drawn[3]) <= 6 + 40
