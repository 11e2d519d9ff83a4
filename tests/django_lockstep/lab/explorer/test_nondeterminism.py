"""Code that does not do the same on the same schedule is found out, and nothing is said of it that may be wrong."""

import itertools
import random
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from django.db import connection, connections, transaction
from django.db.backends.signals import connection_created
from django.db.models import F
from psycopg.conninfo import make_conninfo
from psycopg.sql import SQL

from django_lockstep.lab.explorer import Nondeterminism, NotExplorable, Scenario, explore, replay
from tests.django_lockstep.lab.explorer import stories
from tests.django_lockstep.lab.finder.builders import statements_tagged
from tests.testapps.shop.models import Seat

pytestmark = pytest.mark.django_db(transaction=True)


def by_chance(pk: int) -> None:
    Seat.objects.filter(pk=pk, price__lt=random.random()).exists()
    stories.naive(pk)


def tagged(execute: Callable[[str, list[Any]], Any], pk: int) -> None:
    """Raise the price by statements that have a comment of their own every time."""
    tag = f"/* task={uuid4()} /* 100%%: it's */ */"
    price = execute(f"{tag} SELECT price {tag}\nFROM shop_seat -- {uuid4()}\nWHERE id = %s", [pk]).fetchone()[0]
    execute(f"{tag}UPDATE{tag}shop_seat SET price = %s, guest = '--/*' WHERE id = %s", [price + 10, pk])


@transaction.atomic
def tagged_for_django(pk: int) -> None:
    with connection.cursor() as cursor:
        tagged(lambda sql, params: cursor.execute(sql, params) or cursor, pk)


@transaction.atomic
def tagged_for_the_driver(pk: int) -> None:
    connection.ensure_connection()
    tagged(lambda sql, params: connection.connection.execute(SQL(sql), params), pk)


@transaction.atomic
def tagged_for_a_cursor_of_the_server(pk: int) -> None:
    with connection.chunked_cursor() as cursor:
        cursor.execute(f"SELECT price /* {uuid4()} */ FROM shop_seat WHERE id = %s", [pk])
        price = cursor.fetchone()[0]
    Seat.objects.filter(pk=pk).update(price=price + 10)


UPDATE = "UPDATE shop_seat SET price = %s, guest = '--/*' WHERE id = %s"


@pytest.mark.parametrize("actor", [tagged_for_django, tagged_for_the_driver, tagged_for_a_cursor_of_the_server])
def test_comments_are_not_part_of_a_statement(actor: stories.Actor) -> None:
    result = explore(stories.raising(actor))

    assert result.verdict == "broken", result.reason
    assert result.failure is not None
    statements = {step.sql.removeprefix("FETCH ") for step in result.failure.steps}
    assert any(re.fullmatch(r"SELECT price FROM shop_seat WHERE id = (%s|\d+)", sql) for sql in statements), statements
    assert actor is tagged_for_a_cursor_of_the_server or UPDATE in statements


def test_rows_that_become_old_between_two_runs_are_no_race() -> None:
    runs = itertools.count()

    def set_up() -> int:
        Seat.objects.create(guest="ada", price=50)
        return stories.one_seat()

    def remove_the_old(pk: int) -> None:
        limit = 10 if next(runs) < 3 else 60
        Seat.objects.filter(guest="ada", price__lt=limit)._raw_delete("default")

    def renew(pk: int) -> None:
        Seat.objects.filter(guest="ada").count()
        Seat.objects.filter(guest="ada").update(price=55)

    result = explore(Scenario(set_up=set_up, actors=[remove_the_old, renew]), directed=True)

    assert result.verdict == "nondeterministic"
    assert result.reason.startswith(
        "A, B, one after the other, ended differently when they were repeated: shop_seat: one row less, "
    )


@pytest.mark.parametrize("how", ["backend", "wrapper"])
def test_code_that_comments_every_statement_sends_none(how: str) -> None:
    def tag(execute: Any, sql: str, *arguments: Any) -> Any:
        return execute(f"/* {uuid4()} */ {sql}", *arguments)

    def connected(connection: Any, **kwargs: Any) -> None:
        connection.execute_wrappers.append(tag)
        stack.callback(connection.execute_wrappers.remove, tag)

    with ExitStack() as stack:
        if how == "backend":
            stack.enter_context(statements_tagged())
        else:
            connection_created.connect(connected)
            stack.callback(connection_created.disconnect, connected)
        result = explore(stories.raising(stories.naive))

    assert result.verdict == "broken", result.reason
    assert result.failure is not None
    lines = {step.source.partition(":")[0] for step in result.failure.steps}
    assert lines == {"tests/django_lockstep/lab/explorer/stories.py"}


def numbers() -> Callable[[], int]:
    counter = iter(range(10_000))
    return lambda: next(counter)


number = numbers()


def by_what_went_before(pk: int) -> None:
    if number() % 3:
        Seat.objects.filter(pk=pk).exists()
    stories.naive(pk)


places = itertools.cycle((1, 2, 3, 3, 2, 1))


class Table(str):
    """A name that has another place in every other set, as an object without a hash of its own may have."""

    __slots__ = ()

    def __hash__(self) -> int:
        return next(places)


def by_the_order_of_a_set(pk: int) -> None:
    for table in {Table("shop_seat"), Table("shop_ticket"), Table("shop_place")}:
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT count(*) FROM {table}")


@pytest.mark.parametrize("actor", [by_what_went_before, by_the_order_of_a_set])
def test_other_statements_on_the_same_schedule_are_reported(actor: stories.Actor) -> None:
    result = explore(Scenario(set_up=stories.one_seat, actors=[actor, stories.naive], invariant=bool))

    assert result.verdict == "nondeterministic"
    assert "were different from the last time" in result.reason
    assert "Then: A: SELECT" in result.reason
    assert "Now:  A: SELECT" in result.reason


def test_values_may_differ_as_long_as_the_statements_are_the_same() -> None:
    result = explore(Scenario(set_up=stories.one_seat, actors=[by_chance] * 2, invariant=stories.raised_by(10)))

    assert result.verdict == "broken", result.reason


def test_even_a_race_of_one_schedule_is_run_twice() -> None:
    result = explore(Scenario(set_up=stories.one_seat, actors=[by_the_order_of_a_set], invariant=bool))

    assert (result.verdict, result.schedules) == ("nondeterministic", 1)


def test_an_end_that_does_not_come_twice_is_reported() -> None:
    count = numbers()
    scenario = Scenario(set_up=stories.one_seat, actors=[stories.naive], observe=lambda pk: count())

    result = explore(scenario)

    assert result.verdict == "nondeterministic"
    assert result.reason.startswith("A, one after the other, ended differently when they were repeated: ")


@pytest.mark.parametrize("numbers", [6, 14])
def test_a_text_that_the_clock_changes_once_in_a_while_is_no_wrong_end(numbers: int) -> None:
    numbered = itertools.count()

    def multiplies(factor: int) -> stories.Actor:
        def multiply(pk: int) -> None:
            Seat.objects.filter(pk=pk).update(price=F("price") * factor + 1)
            Seat.objects.create(guest=f"{'late' if next(numbered) >= numbers else 'early'}.pdf")

        return multiply

    result = explore(Scenario(set_up=stories.one_seat, actors=[multiplies(2), multiplies(3)]), reduction="none")

    assert result.verdict == "holds", result.reason


def in_a_thread(pk: int) -> None:
    def work() -> None:
        stories.computed(pk)
        connections.close_all()

    thread = threading.Thread(target=work, name="helper")
    thread.start()
    thread.join()


def on_a_second_connection(pk: int) -> None:
    second = connection.copy()
    with second.cursor() as cursor:
        cursor.execute("SELECT 1")
    second.close()


@pytest.mark.parametrize(("actor", "who"), [(in_a_thread, "helper"), (on_a_second_connection, "race actor A")])
def test_a_connection_that_cannot_be_scheduled_is_reported(actor: stories.Actor, who: str) -> None:
    scenario = Scenario(set_up=stories.one_seat, actors=[actor, stories.naive], invariant=bool)

    result = explore(scenario)

    assert result.verdict == "nondeterministic"
    assert f"Thread '{who}' opened its own connection to 'default'" in result.reason
    with pytest.raises(Nondeterminism):
        replay(scenario, "")


# SessionTracker beside Django's


def address() -> str:
    keys = {"dbname", "host", "port", "user", "password"}
    return make_conninfo(**{key: value for key, value in connection.get_connection_params().items() if key in keys})


RAISE = "UPDATE shop_seat SET price = price + 1"


def by_the_driver(pk: int) -> None:
    with psycopg.connect(address()) as own:
        own.execute(RAISE)


kept: list[psycopg.Connection[tuple[object, ...]]] = []


def by_a_session_that_is_kept(pk: int) -> None:
    if not kept:
        kept.append(psycopg.connect(address(), autocommit=True))
    kept[0].execute(RAISE)


async def by_an_asynchronous_driver(pk: int) -> None:
    async with await psycopg.AsyncConnection.connect(address()) as own:
        await own.execute(RAISE)


def by_a_process(pk: int) -> None:
    code = "import psycopg, sys; psycopg.connect(sys.argv[1], autocommit=True).execute(sys.argv[2])"
    subprocess.run([sys.executable, "-c", code, address(), RAISE], check=True)


@pytest.fixture
def nothing_kept() -> Iterator[None]:
    yield
    while kept:
        kept.pop().close()


@pytest.mark.usefixtures("nothing_kept")
@pytest.mark.parametrize("actor", [by_the_driver, by_a_session_that_is_kept, by_an_asynchronous_driver, by_a_process])
def test_sessions_outside_of_django_are_reported(actor: stories.Actor) -> None:
    result = explore(Scenario(set_up=stories.one_seat, actors=[actor, stories.price], invariant=bool))

    assert result.verdict == "nondeterministic"
    assert "sessions were opened outside of Django" in result.reason


def test_connections_that_the_code_closes_are_none_of_these() -> None:
    def closing(pk: int) -> None:
        connections.close_all()
        stories.locked(pk)
        connections.close_all()

    result = explore(Scenario(set_up=stories.one_seat, actors=[closing, closing], invariant=bool))

    assert result.verdict == "holds", result.reason


def test_a_connection_pooler_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psycopg.ConnectionInfo, "backend_pid", property(lambda info: 1))

    with pytest.raises(NotExplorable, match="'default' is reached through a connection pooler"):
        explore(stories.raising(stories.naive))
