"""Tables that hold rows already: they are as they were afterwards, and an end is what differs from before."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.db.models import F

from django_lockstep.lab.explorer import Exploration, NotExplorable, Scenario, explore, replay
from django_lockstep.lab.explorer.tables.table_copy import LARGE
from tests.django_lockstep.lab.explorer.schemas import made, program, run, trigger
from tests.testapps.shop.models import PlainSeat, Seat

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(params=[LARGE - 1, LARGE], ids=["small", "large"])
def rows(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    Seat.objects.bulk_create(Seat(row=str(number), price=number) for number in range(request.param))
    return held()


def held() -> list[dict[str, Any]]:
    rows: Any = Seat.objects.order_by("pk").values()
    return list(rows)


def first() -> int:
    return Seat.objects.order_by("pk")[0].pk


def raise_price(pk: int) -> None:
    Seat.objects.filter(pk=pk).update(price=F("price") + 1)


def replace(pk: int) -> None:
    Seat.objects.filter(pk=pk).delete()
    Seat.objects.create(row="new", price=5)


def truncate(pk: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE shop_seat CASCADE")


def change_the_key(pk: int) -> None:
    Seat.objects.filter(pk=pk).update(id=pk + 100_000)


@pytest.mark.parametrize("actor", [raise_price, replace, truncate, change_the_key])
def test_every_row_is_put_back(rows: list[dict[str, Any]], actor: Callable[[int], None]) -> None:
    result = explore(Scenario(set_up=first, actors=[actor, raise_price], invariant=lambda pk: True))

    assert result.verdict == "holds", result.reason
    assert held() == rows


def test_set_up_finds_the_same_rows_before_every_schedule(rows: list[dict[str, Any]]) -> None:
    seen = []

    def set_up() -> int:
        seen.append(held())
        return first()

    explore(Scenario(set_up=set_up, actors=[replace, raise_price], invariant=lambda pk: True), reduction="none")

    assert len(seen) > 2
    assert all(rows_before == rows for rows_before in seen)


def test_an_end_is_the_rows_that_differ(rows: list[dict[str, Any]]) -> None:
    result = explore(Scenario(set_up=first, actors=[raise_price, raise_price]))

    state: Any = result.outcomes[0].state
    (now,), (before,) = state["shop_seat"], state["shop_seat, removed"]
    assert (before["row"], before["price"], now["price"]) == ("0", "0.00", "2.00")


def test_what_is_written_as_it_was_is_no_difference() -> None:
    PlainSeat.objects.bulk_create(PlainSeat() for _ in range(LARGE))

    def as_it_was(pk: int) -> None:
        PlainSeat.objects.filter(pk=pk).update(id=F("id"))

    (outcome,) = explore(
        Scenario(set_up=lambda: PlainSeat.objects.order_by("pk")[0].pk, actors=[as_it_was, as_it_was])
    ).outcomes

    assert outcome.state == {}


# Tables of which the explorer's own SQL has to know more than their names

LONG = "made_" + "a" * 54


def counts_up(table: str, **options: Any) -> Exploration:
    """Explore a lost update of n in the row 1 of the table, with a call that has all tables copied."""

    def lost(_: None) -> None:
        ((number,),) = run(f'SELECT n FROM "{table}" WHERE id = 1')
        run("SELECT made_nothing()")
        run(f'UPDATE "{table}" SET n = %s WHERE id = 1', [number + 1])

    return explore(Scenario(set_up=lambda: None, actors=[lost, lost]), reduction="none", max_schedules=4, **options)


NOTHING = "CREATE FUNCTION made_nothing() RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN 1; END'"


@pytest.mark.parametrize("kind", ["int", "jsonb", "text[]"])
def test_a_column_may_have_any_name(kind: str) -> None:
    with made(NOTHING, f"CREATE TABLE made_a (id int PRIMARY KEY, t {kind}, c {kind}, r {kind}, n int)"):
        run("INSERT INTO made_a (id, n) VALUES (1, 0)")
        assert counts_up("made_a").verdict == "broken"


@pytest.mark.parametrize("table", ["now", "before", "marked", "single", "weakest"])
@pytest.mark.parametrize("rows", [1, LARGE])
def test_a_table_may_have_any_name(table: str, rows: int) -> None:
    with made(NOTHING):
        run(f'CREATE TABLE "{table}" (id int PRIMARY KEY, n int)')
        try:
            run(f'INSERT INTO "{table}" SELECT g, 0 FROM generate_series(1, %s) AS g', [rows])
            result = counts_up(table)
            assert (result.verdict, len(run(f'SELECT id FROM "{table}" WHERE n = 0'))) == ("broken", rows)
            shown = replay(
                Scenario(set_up=lambda: None, actors=[program(f'UPDATE "{table}" SET n = 1')]), "", rows=True
            )
            assert {lock.what.strip('"') for lock in shown.held if lock.strength.startswith("FOR")} >= {f"{table} id=1"}
        finally:
            run(f'DROP TABLE "{table}"')


def test_two_long_names_may_begin_alike() -> None:
    with made(NOTHING, *(f"CREATE TABLE {LONG}{end} (id int PRIMARY KEY, n int)" for end in ("bbbb", "cccc"))):
        for end in ("bbbb", "cccc"):
            run(f"INSERT INTO {LONG}{end} VALUES (1, 0)")
        assert counts_up(f"{LONG}bbbb").verdict == "broken"


@pytest.mark.parametrize(
    "schema",
    [
        ("CREATE TABLE made_child () INHERITS (made_a)", "INSERT INTO made_child VALUES (2, 0)"),
        ("CREATE RULE made_rule AS ON DELETE TO made_a WHERE false DO INSTEAD NOTHING",),
        ("CREATE TABLE made_b (id int)", "CREATE POLICY p ON made_a USING (EXISTS (SELECT FROM made_b))"),
    ],
    ids=["inherited", "rule", "policy"],
)
def test_rows_of_unusual_tables_are_put_back(schema: tuple[str, ...]) -> None:
    with made(NOTHING, "CREATE TABLE made_a (id int PRIMARY KEY, n int)", *schema):
        run("INSERT INTO made_a VALUES (1, 0)")
        before = run("SELECT tableoid, * FROM made_a ORDER BY id")
        explore(Scenario(set_up=lambda: None, actors=[program("UPDATE made_a SET n = n + 1")] * 2))
        assert run("SELECT tableoid, * FROM made_a ORDER BY id") == before


@pytest.mark.parametrize("kind", ["ALWAYS", "REPLICA"])
@pytest.mark.parametrize(
    ("what", "schema"),
    [
        ("TRIGGER", trigger("BEGIN NEW.n := NEW.n + 1; RETURN NEW; END")),
        ("RULE", ("CREATE RULE made_t AS ON INSERT TO made_a WHERE NEW.n > 5 DO INSTEAD NOTHING",)),
    ],
)
def test_what_acts_while_rows_are_put_back_is_refused(kind: str, what: str, schema: tuple[str, ...]) -> None:
    enabled = f"ALTER TABLE made_a ENABLE {kind} {what} made_t"
    with made(NOTHING, "CREATE TABLE made_a (id int PRIMARY KEY, n int)", *schema, enabled):
        run("INSERT INTO made_a VALUES (1, 0)")
        before = run("SELECT * FROM made_a")
        told = f"table made_a cannot be put back for every schedule: its {what.lower()} made_t is ENABLE {kind}"
        with pytest.raises(NotExplorable, match=told):
            counts_up("made_a")
        assert run("SELECT * FROM made_a") == before
