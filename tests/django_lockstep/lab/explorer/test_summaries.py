"""Statements in words."""

import pytest
from django.db import connection, transaction

from django_lockstep.lab.explorer import Run, Scenario, Step, replay
from django_lockstep.lab.explorer.effects.statement_text import columns_of
from django_lockstep.lab.explorer.render.summaries import describe_result, describe_step, summarize
from tests.django_lockstep.lab.explorer import stories


def step(sql: str, *arguments: str, rows: int | None = None, **values: str | None) -> Step:
    return Step(
        actor="A",
        begun=0,
        ended=0,
        sql=sql,
        params="",
        arguments=arguments,
        rows=rows,
        values=(values,) if values else (),
    )


SELECT = 'SELECT "shop_seat"."id", "shop_seat"."price" FROM "shop_seat" WHERE "shop_seat"."id" = %s'
UPDATE = (
    'UPDATE "shop_seat" SET "price" = (CASE WHEN %s THEN 1 ELSE 2 END), "guest" = %s WHERE "shop_seat"."id" IN (%s, %s)'
)
INSERT = 'INSERT INTO "shop_seat" ("row", "guest") VALUES (%s, NULL) RETURNING "shop_seat"."id"'


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (step(SELECT, "7"), "SELECT shop_seat id=7"),
        (step(f"{SELECT} FOR NO KEY UPDATE NOWAIT", "7"), "SELECT shop_seat id=7 FOR NO KEY UPDATE NOWAIT"),
        (step(f"{SELECT} OR price > 5", "7"), "SELECT shop_seat id = 7 OR price > 5"),
        (step(INSERT, "Z"), "INSERT shop_seat: row=Z"),
        (step('DELETE FROM "shop_seat" WHERE "shop_seat"."id" IN (%s)', "3"), "DELETE shop_seat id=3"),
        (step("SELECT pg_advisory_xact_lock(%s)", "5"), "SELECT pg_advisory_xact_lock(5)"),
        (step("SELECT '100%%' FROM t"), "SELECT t"),
        (step("INSERT INTO a (b, c) SELECT %s, d FROM e", "7"), "INSERT a: b=7, c=d"),
        (step("SELECT 1 FROM a JOIN b ON b.id = a.id WHERE b.id = 7 AND a.id = 5"), "SELECT a id=5"),
        (step("SELECT 1 FROM a WHERE id = 7::int + 1"), "SELECT a id = CAST(7 AS INT) + 1"),
        (step("SELECT 1 FROM a WHERE id = ANY(%s)", "[1, 2]"), "SELECT a id = ANY([1, 2])"),
        (step("update a set v=v+%s, w = %s where id=%s", "2", "x", "5"), "UPDATE a id=5: v=v+2, w=x"),
        (step("UPDATE a SET v=v*3 WHERE id >= 5"), "UPDATE a id >= 5: v=v*3"),
        (step("UPDATE a SET w = %s WHERE id = 5", ""), "UPDATE a id=5: w=''"),
        (step("COMMIT"), "COMMIT"),
        (step("fetch"), "FETCH"),
        (step(""), ""),
    ],
)
def test_a_statement_in_short(step: Step, words: str) -> None:
    assert describe_step(step) == words


def test_an_update_says_what_it_sets_and_where() -> None:
    guest = "x WHERE y = '1', z FROM other"  # values are not taken for SQL
    summary = summarize(step(UPDATE, "true", guest, "1", "2"))

    assert summary.sets == {"price": "CASE WHEN true THEN 1 ELSE 2 END", "guest": guest}
    assert (summary.table, summary.plain, summary.keys) == ("shop_seat", {"guest"}, {"id": {"1", "2"}})


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        (UPDATE, {"guest": {"Q"}, "id": {"R", "S"}}),
        (INSERT, {"row": {"P"}, "guest": {""}}),
        ("SELECT 1 FROM a JOIN b ON b.id = a.id WHERE (b.token = %s OR NOT a.key IN (%s, 'x'))",
         {"token": {"P"}, "key": {"Q", "x"}, "id": {""}}),
        ("LOCK TABLE a", {}),
    ],
)  # fmt: skip
def test_the_columns_that_values_belong_to(sql: str, columns: dict[str, set[str]]) -> None:
    hidden = {name: values for name, values in columns_of(sql, ("P", "Q", "R", "S")) if name != "price"}

    assert hidden == columns


def test_rows_are_compared_by_what_fixes_them() -> None:
    by_guest = summarize(step('SELECT "id" FROM "shop_seat" WHERE "shop_seat"."guest" = %s', "Ada"))
    by_key, other = summarize(step(SELECT, "1")), summarize(step(SELECT, "2"))

    assert (by_key.same_row(by_key), by_key.may_touch(by_key)) == (True, True)
    assert (by_key.same_row(other), by_key.may_touch(other)) == (False, False)
    assert (by_guest.same_row(by_key), by_guest.may_touch(by_key)) == (False, True)


def test_a_guard_on_what_is_set_does_not_tell_rows_apart() -> None:
    guarded = 'UPDATE "shop_seat" SET "version" = %s WHERE "shop_seat"."id" = %s AND "shop_seat"."version" = %s'
    assert summarize(step(guarded, "2", "7", "1")).same_row(summarize(step(guarded, "3", "7", "2")))
    assert not summarize(step(guarded, "2", "7", "1")).may_touch(summarize(step(guarded, "2", "8", "1")))


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (step(SELECT, "1", rows=1, id="1", price="5"), "id=1, price=5"),
        (step(SELECT, "1", rows=1, id="1", price=None), "id=1, price=NULL"),
        (step(SELECT, "1", rows=0), "0 rows"),
        (step('SELECT 1 AS "a" FROM "shop_seat" LIMIT 1', rows=1, a="1"), "1 row"),
        (step(UPDATE, "true", "Ada", "1", "2", rows=2), "2 rows"),
        (step(INSERT, "Z", rows=1), ""),
        (step("COMMIT"), ""),
    ],
)
def test_what_came_of_a_statement(step: Step, words: str) -> None:
    assert describe_result(step) == words


# What runs tell of their steps


def run_alone(actor: stories.Actor) -> Run:
    return replay(Scenario(set_up=stories.one_seat, actors=[actor]), "")


@pytest.mark.django_db(transaction=True)
def test_steps_are_numbered_by_their_transaction() -> None:
    def two_blocks(pk: int) -> None:
        stories.computed(pk)
        stories.price(pk)
        with transaction.atomic():
            stories.price(pk)
            with transaction.atomic():
                stories.price(pk)

    told_of = [(step.sql.split()[0], step.transaction) for step in run_alone(two_blocks).steps]

    assert told_of == [
        ("UPDATE", 0),
        ("COMMIT", 0),
        ("SELECT", None),
        *[("SELECT", 1), ("SAVEPOINT", 1), ("SELECT", 1), ("RELEASE", 1), ("COMMIT", 1)],
    ]


@pytest.mark.django_db(transaction=True)
def test_parameters_are_reported_one_by_one_unless_there_are_several_sets() -> None:
    def write(pk: int) -> None:
        with connection.cursor() as cursor:
            cursor.execute("UPDATE shop_seat SET guest = coalesce(%s, guest), price = %s WHERE id = %s", [None, 5, pk])
            cursor.executemany("UPDATE shop_seat SET guest = %s", [("Ada",), ("Grace",)])

    first, second = run_alone(write).steps[:2]

    assert first.arguments[:2] == ("NULL", "5")
    assert second.arguments == ()
