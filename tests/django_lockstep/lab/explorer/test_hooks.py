"""Whatever goes to the server is a step, however Django or the driver sends it."""

import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import IntegrityError, connection, connections, transaction
from django.db.models import F
from psycopg import Binary, IsolationLevel
from psycopg.types.json import Jsonb

from django_lockstep.lab.explorer import NotExplorable, Run, Scenario, explore, replay
from django_lockstep.lab.explorer.driver.hooks import Gate, Hooks
from django_lockstep.lab.explorer.effects.operations import Operation
from tests.django_lockstep.lab.explorer import stories
from tests.django_lockstep.lab.explorer.programs import ends
from tests.support.sessions import query
from tests.testapps.shop.models import Seat, Ticket

pytestmark = pytest.mark.django_db(transaction=True)

RAISE = "UPDATE shop_seat SET price = price + 1 WHERE id = %s"


def alone(actor: stories.Actor) -> Run:
    return replay(Scenario(set_up=stories.one_seat, actors=[actor], invariant=bool), "")


def words(run: Run) -> list[str]:
    return [step.sql.split()[0] for step in run.steps]


def driver() -> Any:
    """The driver's own connection under Django's."""
    connection.ensure_connection()
    return connection.connection


def raise_price(pk: int) -> None:
    Seat.objects.filter(pk=pk).update(price=F("price") + 1)


# Transactions


class Noting(Gate):
    """A gate that stops nothing and remembers what passes."""

    def __init__(self) -> None:
        self.passed: list[Operation] = []

    def before(self, operation: Operation) -> None:
        self.passed.append(operation)


@pytest.mark.parametrize("level", IsolationLevel)
def test_a_level_that_the_driver_sets_is_the_transactions(level: IsolationLevel) -> None:
    gate, before = Noting(), driver().isolation_level
    hooks = Hooks(connection, gate)
    driver().isolation_level = level
    try:
        with transaction.atomic():
            told = query("SHOW transaction_isolation")
    finally:
        driver().isolation_level = before
        hooks.remove()

    # PostgreSQL names READ UNCOMMITTED, and treats it as the next one.
    assert gate.passed[0].isolation == str(told).replace("uncommitted", "committed")


def in_atomic(pk: int) -> None:
    with transaction.atomic():
        raise_price(pk)


def in_nothing_but_atomic(pk: int) -> None:
    with transaction.atomic():
        pass


def rolled_back(pk: int) -> None:
    with transaction.atomic():
        raise_price(pk)
        transaction.set_rollback(True)


def nested(pk: int) -> None:
    with transaction.atomic(), transaction.atomic():
        raise_price(pk)


def nested_and_failed(pk: int) -> None:
    with transaction.atomic():
        try:
            with transaction.atomic():
                Seat.objects.bulk_create([Seat(pk=pk)])
        except IntegrityError:
            raise_price(pk)


def by_hand(pk: int) -> None:
    transaction.set_autocommit(False)
    raise_price(pk)
    connection.commit()
    raise_price(pk)
    connection.rollback()
    transaction.set_autocommit(True)


def in_sql(pk: int) -> None:
    with connection.cursor() as cursor:
        for sql in ("BEGIN", "SAVEPOINT mine", "ROLLBACK TO mine", "RELEASE mine", "END"):
            cursor.execute(sql)
        for sql in ("START TRANSACTION", "SELECT 1", "ABORT"):
            cursor.execute(sql)


def by_the_driver(pk: int) -> None:
    with driver().transaction():
        driver().execute(RAISE, [pk])
        with driver().transaction(force_rollback=True):
            driver().execute(RAISE, [pk])
        with driver().transaction():
            driver().execute(RAISE, [pk])


@pytest.mark.parametrize(
    ("actor", "expected"),
    [
        (in_atomic, "UPDATE COMMIT"),
        (in_nothing_but_atomic, ""),
        (rolled_back, "UPDATE ROLLBACK"),
        (nested, "SAVEPOINT UPDATE RELEASE COMMIT"),
        (nested_and_failed, "SAVEPOINT INSERT ROLLBACK RELEASE UPDATE COMMIT"),
        (by_hand, "UPDATE COMMIT UPDATE ROLLBACK"),
        (in_sql, "BEGIN SAVEPOINT ROLLBACK RELEASE END START SELECT ABORT"),
        (by_the_driver, "BEGIN UPDATE SAVEPOINT UPDATE ROLLBACK SAVEPOINT UPDATE RELEASE COMMIT"),
    ],
)
def test_the_ends_of_transactions_are_steps(actor: stories.Actor, expected: str) -> None:
    run = alone(actor)

    assert words(run) == expected.split()
    assert run.errors == {}


def orphaned(pk: int) -> None:
    with transaction.atomic():
        Ticket.objects.create(seat_id=pk + 1)
        raise_price(pk)


def test_a_deferred_constraint_fails_at_commit() -> None:
    run = alone(orphaned)

    assert [(step.sql, step.sqlstate) for step in run.steps][-1] == ("COMMIT", "23503")
    assert run.errors == {"A": "23503"}


def test_callbacks_on_commit_are_steps_in_their_order() -> None:
    def actor(pk: int) -> None:
        with transaction.atomic():
            for guest in ("Ada", "Bob"):
                transaction.on_commit(lambda guest=guest: Seat.objects.filter(pk=pk).update(guest=guest))  # type: ignore[misc]
            raise_price(pk)

    run = alone(actor)

    assert words(run) == ["UPDATE", "COMMIT", "UPDATE", "UPDATE"]
    assert ["Ada" in run.steps[2].params, "Bob" in run.steps[3].params] == [True, True]


def test_others_come_in_between_commit_and_its_callback() -> None:
    def mailing(pk: int) -> str:
        seen = []
        with transaction.atomic():
            Seat.objects.filter(pk=pk).update(guest="Ada")
            transaction.on_commit(lambda: seen.append(Seat.objects.get(pk=pk).guest))
        return "Ada" if seen == ["Ada"] else "somebody else"

    def erasing(pk: int) -> None:
        Seat.objects.filter(pk=pk).update(guest="")

    run = replay(Scenario(set_up=stories.one_seat, actors=[mailing, erasing], invariant=bool), "AABA")

    assert [step.sql.split()[0] for step in run.steps if step.actor == "A"] == ["UPDATE", "COMMIT", "SELECT"]
    assert run.steps[-1].values[0]["guest"] == ""


# Cursors


def many(pk: int) -> None:
    with connection.cursor() as cursor:
        cursor.executemany("UPDATE shop_seat SET price = price + %s WHERE id = %s", [(1, pk), (2, pk)])


def in_batches(pk: int) -> None:
    Ticket.objects.bulk_create([Ticket(seat_id=pk) for _ in range(3)], batch_size=2)


def streamed(pk: int) -> None:
    with transaction.atomic():
        for seat in Seat.objects.iterator(chunk_size=1):
            raise_price(seat.pk)


def streamed_without_transaction(pk: int) -> None:
    for seat in Seat.objects.iterator():
        raise_price(seat.pk)


def streamed_and_locked(pk: int) -> None:
    with transaction.atomic():
        for seat in Seat.objects.select_for_update().iterator():
            Seat.objects.filter(pk=seat.pk).update(price=seat.price + 1)


def fetched(pk: int) -> None:
    with driver().transaction(), driver().cursor("mine") as cursor:
        cursor.execute("SELECT price FROM shop_seat")
        cursor.fetchone()


def sent_by_the_driver(pk: int) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        driver().cursor().execute(RAISE, [pk])


def streamed_by_the_driver(pk: int) -> None:
    list(driver().cursor().stream("SELECT id FROM shop_seat"))


def called(pk: int) -> None:
    with connection.cursor() as cursor:
        cursor.callproc("abs", [-1])


def copied_in(pk: int) -> None:
    with connection.cursor() as cursor, cursor.copy("COPY shop_ticket (id, seat_id) FROM STDIN") as copy:
        copy.write_row([uuid.UUID(int=1), pk])


def copied_out(pk: int) -> None:
    with connection.cursor() as cursor, cursor.copy("COPY shop_seat TO STDOUT") as copy:
        list(copy.rows())


@pytest.mark.parametrize(
    ("actor", "expected"),
    [
        (many, "UPDATE"),
        (in_batches, "INSERT INSERT COMMIT"),
        (streamed, "SELECT FETCH UPDATE FETCH CLOSE COMMIT"),
        (streamed_without_transaction, "SELECT FETCH UPDATE FETCH CLOSE"),
        (fetched, "BEGIN SELECT FETCH CLOSE COMMIT"),
        (sent_by_the_driver, "SELECT UPDATE COMMIT"),
        (streamed_by_the_driver, "SELECT stream stream"),
        (called, "SELECT"),
        (copied_in, "COPY copy copy"),
        (copied_out, "COPY read read"),
    ],
)
def test_every_cursor_s_way_to_the_server_is_a_step(actor: stories.Actor, expected: str) -> None:
    run = alone(actor)

    assert words(run) == expected.split()
    assert run.errors == {}


@pytest.mark.parametrize("actor", [streamed, streamed_without_transaction, streamed_and_locked, by_the_driver])
def test_reduction_changes_no_outcome_of_cursors_and_the_driver_s_transactions(actor: stories.Actor) -> None:
    scenario = Scenario(set_up=stories.one_seat, actors=[actor, in_atomic], observe=stories.price)

    assert ends(explore(scenario)) == ends(explore(scenario, reduction="none"))


def test_a_row_fetched_for_update_is_waited_for_at_the_fetch() -> None:
    scenario = Scenario(set_up=stories.one_seat, actors=[in_atomic, streamed_and_locked], invariant=bool)

    run = replay(scenario, "ABBAB")

    (waited,) = [step for step in run.steps if step.waited_for]
    assert (waited.sql.split()[0], waited.waited_for) == ("FETCH", ("A",))


@pytest.mark.parametrize(
    ("of_type", "value"),
    [
        ("bool", True),
        ("bytea", memoryview(b"seat")),
        ("bytea", Binary(b"seat")),
        ("date", date(2020, 1, 1)),
        ("float8", 1.0),
        ("int[]", [1, 2]),
        ("interval", timedelta(hours=1)),
        ("interval", timedelta(days=-1, hours=2)),
        ("jsonb", Jsonb({"seat": 1, "a": [True, None]})),
        ("numeric", Decimal("10.00")),
        ("timestamptz", datetime(2020, 1, 1, tzinfo=UTC)),
        ("uuid", uuid.UUID(int=1)),
    ],
)
def test_a_value_has_the_same_text_as_a_parameter_and_in_a_row(of_type: str, value: Any) -> None:
    def actor(pk: int) -> None:
        query(f"SELECT %s::{of_type} AS it", value)

    (step,) = alone(actor).steps

    assert step.values[0]["it"] == step.arguments[0]


def test_a_value_that_python_has_not_is_shown_as_the_server_writes_it() -> None:
    (step,) = alone(lambda pk: query("SELECT 'infinity'::date AS it, NULL::date AS none")).steps

    assert step.values[0] == {"it": "infinity", "none": None}


def pipelined(pk: int) -> None:
    with driver().pipeline():
        driver().execute(RAISE, [pk])


def pipelined_through_django(pk: int) -> None:
    with driver().pipeline():
        raise_price(pk)


@pytest.mark.parametrize("actor", [pipelined, pipelined_through_django])
def test_pipeline_mode_is_refused(actor: stories.Actor) -> None:
    with pytest.raises(NotExplorable, match="pipeline mode of psycopg"):
        explore(Scenario(set_up=stories.one_seat, actors=[actor, raise_price]))


def test_many_statements_of_the_driver_are_no_pipeline_mode() -> None:
    def many_by_the_driver(pk: int) -> None:
        driver().cursor().executemany(RAISE, [(pk,), (pk,)])

    assert alone(many_by_the_driver).errors == {}


@pytest.mark.parametrize("pool", [True, {"max_size": 4}])
def test_a_pool_that_is_too_small_is_refused_with_the_size_it_needs(pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection.settings_dict["OPTIONS"], "pool", pool)

    with pytest.raises(NotExplorable, match="has 4 connections; a race of 2 actors needs 5"):
        explore(Scenario(set_up=stories.one_seat, actors=[raise_price] * 2))


# Other databases


def test_databases_that_the_test_may_not_use_are_left_alone(beside: str) -> None:
    with pytest.raises(AssertionError, match="not allowed"):
        connections[beside].ensure_connection()

    assert explore(stories.raising(stories.locked)).verdict == "holds"


def test_what_the_set_up_writes_to_another_database_is_put_back(allowed: str) -> None:
    def set_up() -> int:
        return Seat.objects.using(allowed).create(price=100).pk

    explore(Scenario(set_up=set_up, actors=[stories.naive]))

    assert not Seat.objects.exists()


def test_statements_to_another_alias_are_steps(allowed: str) -> None:
    def two_databases(pk: int) -> None:
        with transaction.atomic(using=allowed):
            Seat.objects.using(allowed).filter(pk=pk).update(price=F("price") + 10)
        Seat.objects.filter(pk=pk).update(price=F("price") + 1)

    run = alone(two_databases)

    assert words(run) == ["UPDATE", "COMMIT", "UPDATE"]
    assert "price=111.00" in run.end


def test_actors_on_different_aliases_wait_for_each_other(allowed: str) -> None:
    def elsewhere(pk: int) -> None:
        with transaction.atomic(using=allowed):
            value = Seat.objects.using(allowed).select_for_update().get(pk=pk).price
            Seat.objects.using(allowed).filter(pk=pk).update(price=value + 10)

    scenario = Scenario(set_up=stories.one_seat, actors=[stories.locked, elsewhere], invariant=stories.raised_by(10))

    assert explore(scenario).verdict == "holds"
    assert any(step.waited_for == ("A",) for step in replay(scenario, "AB").steps)


def test_a_set_up_may_open_its_connection_again() -> None:
    def set_up() -> int:
        connections.close_all()
        return stories.one_seat()

    assert explore(Scenario(set_up=set_up, actors=[stories.locked] * 2)).verdict == "holds"
    assert not Seat.objects.exists()


# Coroutines


async def asynchronous_iterator(pk: int) -> None:
    async for seat in Seat.objects.filter(pk=pk):
        await Seat.objects.filter(pk=pk).aupdate(price=seat.price + 10)


def test_coroutines_race_like_anything_else() -> None:
    result = explore(stories.raising(asynchronous_iterator))

    assert result.failure is not None
    assert (result.verdict, result.failure.state) == ("broken", "110.00")


def test_of_columns_with_one_name_the_first_is_kept_which_is_that_of_the_rows_looked_for() -> None:
    sql = "SELECT main.id, main.price, joined.id, joined.price FROM shop_seat main LEFT JOIN shop_seat joined ON false"
    (step,) = alone(lambda pk: query(sql)).steps

    assert step.values[0]["price"] is not None
