"""Waiters for one row of which the server lets any one go on first: a search runs each of these orders."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import IntegrityError, connection, transaction

from django_lockstep.lab.explorer import Scenario, explore, replay
from django_lockstep.lab.explorer.driver.move_builder import MoveBuilder
from django_lockstep.lab.explorer.effects.footprints import Footprint, Mode, lock, touch
from django_lockstep.lab.explorer.errors import Overtaken
from django_lockstep.lab.explorer.render.moves import moves_of
from django_lockstep.lab.explorer.search.branches import Move
from django_lockstep.lab.explorer.search.dpor import Search
from django_lockstep.lab.explorer.search.waits import first_ones
from django_lockstep.lab.explorer.session import ExplorationSession
from django_lockstep.lab.explorer.spec.specs import write_spec
from django_lockstep.locking import isolated_transaction
from tests.django_lockstep.lab.explorer import stories
from tests.django_lockstep.lab.explorer.programs import actor, among, unnamed_ends
from tests.testapps.shop.models import Seat, Ticket

pytestmark = pytest.mark.django_db(transaction=True)

A, B, C, D = range(4)
ROW = ("shop_seat", 1)
LOCKS = lock("lock", {(ROW, Mode.UPDATE)})
PUBLISHES = touch("publish", {ROW}) | lock("release", {(ROW, Mode.UPDATE)})


def returned(pk: int) -> int:
    price = int(stories.price(pk))
    stories.locked(pk)
    return price


def scenario(actors: int = 4, **terms: Any) -> Scenario:
    """Actors that lock one row: SELECT FOR UPDATE, UPDATE, COMMIT."""
    return Scenario(set_up=stories.one_seat, actors=[stories.locked] * actors, observe=stories.price, **terms)


BOTH_WAIT = "AABCABD"
"""B waits for A, C behind B; A commits, and B has the row; D asks for its new version, which C did not."""


# The search


def test_a_search_has_each_of_them_go_first() -> None:
    search = Search()
    first = []
    while branch := search.take():
        assert branch.choose([A]) == A
        branch.record(Move(actor=A, footprint=PUBLISHES, contested=True))
        first.append(branch.choose([D, C]))
        branch.record(Move(actor=first[-1] or 0, footprint=LOCKS))
        search.add(branch)

    assert first == [D, C], "in a new state the one that has won is preferred"


def test_a_run_that_cannot_be_made_is_left_out() -> None:
    search = Search()
    branch = search.take()
    assert branch is not None
    branch.choose([A])
    branch.record(Move(actor=A, footprint=PUBLISHES, contested=True))
    branch.choose([C, D])
    branch.record(Move(actor=C, footprint=LOCKS))
    search.add(branch)
    second = search.take()
    assert second is not None
    second.unreached = True
    search.add(second)

    assert search.left == 0
    assert search.take() is None


# On the server


@pytest.mark.parametrize(("first", "last"), ["CD", "DC"])
def test_a_schedule_says_who_goes_first(first: str, last: str) -> None:
    run = replay(scenario(), f"{BOTH_WAIT}B{first}", rows=True)

    assert run.schedule == f"{BOTH_WAIT}B{first}{2 * first}{2 * last}"
    assert run.unsteerable == 0
    moves = list(moves_of(run))
    won = moves[len(BOTH_WAIT) + 1]
    assert (won.letter, won.woken, won.text) == (first, (first,), "goes on first, which the server decides")


@pytest.mark.slow
def test_where_the_server_never_chooses_so_the_order_is_said_to_be_its_own(monkeypatch: Any) -> None:
    competitors: Callable[..., tuple[frozenset[int], frozenset[int]]] = MoveBuilder._competitors

    def never_the_last(self: MoveBuilder, parts: Mapping[int, Footprint], chosen: int, **waits: Any) -> Any:
        winner, losers = competitors(self, parts, chosen, **waits)
        if D in winner:
            raise Overtaken("as on a server that always prefers the other one")
        return winner, losers

    monkeypatch.setattr(MoveBuilder, "_competitors", never_the_last)
    monkeypatch.setattr("django_lockstep.lab.explorer.retries._TURNS", 2)
    run = explore(scenario())

    assert run.verdict == "incomplete"
    assert run.reason.endswith("the server alone decided the order of the waiters")


def test_a_spec_marks_the_wait_with_the_step_that_ended_it() -> None:
    spec = write_spec(scenario(), f"{BOTH_WAIT}BD")

    waits = [line.strip() for line in spec.text.splitlines() if line.strip().startswith("d1_select(")]
    assert waits == ["d1_select(b3_commit)"], spec.text


def adds(pk: int) -> int:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("UPDATE shop_seat SET price = price + 10 WHERE id = %s RETURNING price", [pk])
        return int(cursor.fetchone()[0])


@pytest.mark.slow
def test_they_are_found_with_and_without_reduction() -> None:
    racing = Scenario(set_up=stories.one_seat, actors=[adds] * 3, observe=stories.price)
    full, reduced = explore(racing, reduction="none"), explore(racing)

    assert full.verdict == reduced.verdict == "holds", (full.reason, reduced.reason)
    assert unnamed_ends(full) == unnamed_ends(reduced)
    assert full.schedules >= reduced.schedules


def locks_at_its_snapshot(pk: int) -> None:
    with isolated_transaction(isolation_level="repeatable read"):
        Seat.objects.select_for_update().get(pk=pk)


@pytest.mark.slow
def test_who_is_refused_at_its_snapshot_is_so_in_one_and_the_same_move() -> None:
    racing = Scenario(set_up=stories.one_seat, actors=[adds, adds, locks_at_its_snapshot])
    ended = set()
    for _ in range(10):
        run = replay(racing, "ABCCA")
        ended |= {step.ended for step in run.steps if (step.actor, step.begun) == ("C", 3)}

    # B has the row then; without another try C is refused at one time with A's COMMIT, and at another after B's.
    assert (ended, run.unsteerable) == ({4}, 0)


def test_who_waited_for_one_that_fails_goes_on_after_that_one() -> None:
    programs = [("driver", (("add", 1), ("add", 0))), ("driver", (("add", 1),)), ("driver", (("add", 0),))]
    run = replay(among([actor(program) for program in programs]), "ACABC")

    assert (run.errors, run.unsteerable) == ({"A": "40001"}, 0)
    assert {step.actor for step in run.steps if step.ended == 4} == {"A", "B", "C"}


def changes_what_it_read(pk: int) -> None:
    with transaction.atomic():
        seen = stories.price(pk)
        Seat.objects.filter(pk=pk, price=seen).update(price=seen + 10)


def test_a_row_that_was_only_locked_has_no_new_version_for_which_they_would_compete() -> None:
    racing = Scenario(set_up=stories.one_seat, actors=[changes_what_it_read] * 4)
    # B and C wait for A; B then finds that the row has changed, and holds it without a change until its COMMIT. C, the
    # first to wait, goes on with that; a contest would be a letter of its own.
    run = replay(racing, "AABBCCADDB")

    assert run.schedule == "AABBCCADDBCD"
    assert run.unsteerable == 0


def changes_the_first_price(pk: int) -> None:
    with transaction.atomic():
        Seat.objects.filter(pk=pk, price=100).update(price=110)


@pytest.mark.slow
def test_orders_after_a_row_was_only_locked_are_found_with_and_without_reduction() -> None:
    racing = Scenario(set_up=stories.one_seat, actors=[changes_the_first_price] * 3, observe=stories.price)
    full, reduced = explore(racing, reduction="none"), explore(racing)

    assert (full.left, reduced.left) == (0, 0)
    assert (full.unsteerable, reduced.unsteerable) == (0, 0)
    assert unnamed_ends(full) == unnamed_ends(reduced)
    assert full.schedules > reduced.schedules


def deletes(pk: int) -> int:
    return Ticket.objects.filter(seat_id=pk).delete()[0]


def adds_a_guest(pk: int) -> None:
    User.objects.get_or_create(username="ada")


def creates_a_guest(pk: int) -> bool:
    with suppress(IntegrityError), transaction.atomic():
        User.objects.create(username="ada")
        return True
    return False


def joins_a_group(pk: int) -> None:
    Group.objects.get(name="guests").user_set.add(User.objects.get(username="host"))


def seat_and_host() -> int:
    User.objects.create(username="host")
    Group.objects.create(name="guests")
    seat = stories.one_seat()
    Ticket.objects.create(seat_id=seat)
    return seat


@pytest.mark.parametrize("waits", [deletes, adds_a_guest, creates_a_guest, joins_a_group])
def test_three_who_wait_for_one_key_or_row_and_then_do_nothing_go_on_in_any_order(waits: Any) -> None:
    race = explore(Scenario(set_up=seat_and_host, actors=[waits] * 3), audit=4)

    assert (race.verdict, race.unsteerable) == ("holds", 0), race.reason


def upserts(letter: str) -> Callable[[Any], None]:
    """Add a letter to the name of a group that none has made yet; the next statement comes under its lock."""

    def run(_: object) -> None:
        sql = "INSERT INTO auth_group (name) VALUES (%s) ON CONFLICT (name) DO UPDATE SET name = auth_group.name"
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(sql, ["guests"])
            cursor.execute("UPDATE auth_user SET username = username || %s", [letter])

    return run


@pytest.mark.slow
def test_three_upserts_of_a_new_row_are_found_in_every_order() -> None:
    actors = [upserts(letter) for letter in "abc"]
    scenario = Scenario(
        set_up=lambda: User.objects.create(username="") and None,
        actors=actors,
        observe=lambda _: User.objects.get().username,
    )
    full, reduced = explore(scenario, reduction="none"), explore(scenario)

    assert (full.verdict, reduced.verdict) == ("holds", "holds"), (full.reason, reduced.reason)
    assert {str(outcome.state) for outcome in reduced.outcomes} == {"abc", "acb", "bac", "bca", "cab", "cba"}
    assert {str(outcome.state) for outcome in full.outcomes} == {str(outcome.state) for outcome in reduced.outcomes}


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
