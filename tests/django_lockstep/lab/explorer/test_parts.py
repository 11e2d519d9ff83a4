"""Statements of several parts, in one round trip, with their parameters bound by the server."""

import uuid
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction

from django_lockstep.lab.explorer import Scenario, explain, explore, replay, timeline
from tests.django_lockstep.lab.explorer import stories
from tests.django_lockstep.lab.explorer.programs import ends
from tests.testapps.shop.models import Seat, Ticket

pytestmark = pytest.mark.django_db(transaction=True)

RAISE = "UPDATE shop_seat SET price = price + 10 WHERE shop_seat.id = %s RETURNING id"
SELL = "INSERT INTO shop_ticket (id, seat_id) SELECT %s, id FROM changed"
LOCK = "SELECT id FROM shop_seat WHERE id = %s AND (SELECT pg_advisory_xact_lock(%s)) IS NOT NULL FOR NO KEY UPDATE"
RAISE_LOCKED = "UPDATE shop_seat SET price = price + 10 WHERE id = (SELECT id FROM locked) RETURNING id"
SET = "UPDATE shop_seat SET price = %s WHERE shop_seat.id = %s RETURNING id"


def send(sql: str, *params: Any, wrapped: bool = True) -> None:
    """Send it with a cursor of the driver that prepares it at once, through Django's execute wrappers or past them."""
    connection.ensure_connection()
    connection.connection.prepare_threshold = 0
    cursor: Any = psycopg.Cursor(connection.connection)
    with connection.make_cursor(cursor) if wrapped else cursor as using:
        using.execute(sql, params)


def sell(pk: int) -> None:
    send(f"WITH changed AS ({RAISE}) {SELL}", pk, uuid.uuid4())


def lock_and_sell(pk: int) -> None:
    send(
        f"WITH locked AS MATERIALIZED ({LOCK}), changed AS ({RAISE_LOCKED}), sold AS ({SELL}) SELECT * FROM changed",
        pk, pk, uuid.uuid4(),
    )  # fmt: skip


def sell_many(pk: int) -> None:
    Ticket.objects.bulk_create([Ticket(seat_id=pk), Ticket(seat_id=pk)])


def compute_and_sell(pk: int) -> None:
    with transaction.atomic():
        price = stories.price(pk)
        send(f"WITH changed AS ({SET}) {SELL}", price + 10, pk, uuid.uuid4())


def sold(fixture: Any) -> list[Any]:
    return [*Seat.objects.order_by("pk").values_list("price", flat=True), Ticket.objects.count()]


@pytest.mark.parametrize("actor", [sell, lock_and_sell, sell_many, compute_and_sell])
def test_reduction_changes_no_outcome_and_leaves_out_what_is_about_other_rows(actor: Callable[[int], None]) -> None:
    same = Scenario(set_up=stories.one_seat, actors=[actor] * 2, invariant=bool, observe=sold)
    apart = Scenario(
        set_up=stories.two_seats,
        actors=[lambda pks: actor(pks[0]), lambda pks: send(RAISE, pks[1])],
        invariant=bool,
        observe=sold,
    )

    assert ends(explore(same)) == ends(explore(same, reduction="none"))
    assert ends(explore(apart)) == ends(explore(apart, reduction="none"))
    # Which row a later part means by the key of an earlier one is not read.
    assert explore(apart).schedules == (2 if actor is lock_and_sell else 1)


@pytest.mark.parametrize("wrapped", [True, False])
def test_a_statement_is_one_step_when_it_is_prepared_and_when_it_is_there_already(wrapped: bool) -> None:
    def twice(pk: int) -> None:
        send(RAISE, pk, wrapped=wrapped)
        send(RAISE, pk, wrapped=wrapped)

    run = replay(Scenario(set_up=stories.one_seat, actors=[twice], observe=stories.price), "")

    assert [(step.sql, step.arguments) for step in run.steps] == [(RAISE, run.steps[0].arguments)] * 2
    assert run.state == "120.00"


def test_a_wait_inside_such_a_statement_shows_its_row() -> None:
    run = replay(Scenario(set_up=stories.one_seat, actors=[stories.naive, sell], observe=sold), "AABA")

    (waited,) = [step for step in run.steps if step.waited_for]
    assert waited.waited_on.startswith("shop_seat id=")
    assert "UPDATE shop_seat" in timeline(run)
    assert "INSERT shop_ticket" in timeline(run)


def test_a_lost_update_inside_such_a_statement_is_explained() -> None:
    race = Scenario(set_up=stories.one_seat, actors=[compute_and_sell] * 2, invariant=stories.raised_by(10))

    failure = explore(race).failure

    assert failure is not None
    assert explain(failure).startswith("lost update: B wrote price 110.00 computed from 100.00, which A had changed")
