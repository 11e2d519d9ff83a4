"""What statements touch, and what depends on what, by their text alone."""

from typing import Any

import pytest

from django_lockstep.lab.explorer.effects.catalog import Catalog, ForeignKey, TableFacts, UniqueIndex
from django_lockstep.lab.explorer.effects.footprints import ADVISORY, FootprintKey, Mode
from django_lockstep.lab.explorer.effects.introspection import Functions, TableTriggers
from django_lockstep.lab.explorer.effects.operations import text_of
from django_lockstep.lab.explorer.effects.queries import read_text
from django_lockstep.lab.explorer.effects.sql import parse
from django_lockstep.lab.explorer.effects.statements import Statement


def table(name: str, **values: Any) -> TableFacts:
    return TableFacts(name=name, **{"pk": "id", "unique": frozenset({"id"}), **values})


AUDITED = frozenset({"table audited: its trigger t calls audit()"})
TABLES = [
    table("seat", children=frozenset({"ticket"})),
    table("ticket", foreign_keys=frozenset({ForeignKey(parent="seat", columns=("seat_id",))})),
    table("audited", triggers=TableTriggers(opaque={"UPDATE": {*AUDITED}})),
    table("view", special=True),
]


FUNCTIONS = Functions(servers=frozenset({"lower", "my_function"}))


def read(sql: str, *params: Any) -> Statement:
    return parse(sql, params, catalog=Catalog(TABLES, functions=FUNCTIONS))


@pytest.mark.parametrize(
    ("sql", "params", "reads"),
    [
        ('SELECT "seat"."price" FROM "seat" WHERE "seat"."id" = %s LIMIT 21', [7], {("seat", 7)}),
        ("select price from seat where id = 7", [], {("seat", 7)}),
        ('SELECT 1 FROM "seat" WHERE ("seat"."row" = %s AND "seat"."id" IN (%s, %s))', ["A", 1, 2],
         {("seat", 1), ("seat", 2)}),
        ('SELECT 1 FROM "seat" WHERE "seat"."id" IN (%s) AND "seat"."price" > %s', [5, 9], {("seat", 5)}),
        ('SELECT 1 FROM "seat" WHERE ("seat"."id" = %s OR "seat"."price" = %s)', [1, 2], {("seat", None)}),
        ('SELECT 1 FROM "seat" WHERE NOT ("seat"."id" = %s)', [1], {("seat", None)}),
        ('SELECT 1 FROM "seat" WHERE "seat"."id" >= %s', [1], {("seat", None)}),
        ('SELECT 1 FROM "seat" WHERE "seat"."id" = %s + 1', [1], {("seat", None)}),
        ('SELECT 1 FROM "seat" WHERE "seat"."id" = %s', ["c0ffee-uuid"], {("seat", None)}),
        ('SELECT 1 FROM "seat" INNER JOIN "ticket" ON ("seat"."id" = "ticket"."seat_id") WHERE "seat"."id" = %s', [1],
         {("seat", None), ("ticket", None)}),
        ("SELECT 1", [], set()),
        ("SELECT 1 FROM seat WHERE id = 1::int", [], {("seat", 1)}),
        ("SELECT 1 FROM seat WHERE id = 1::int + 1", [], {("seat", None)}),
        ("SELECT 1 FROM seat WHERE id = 1<<1", [], {("seat", None)}),
        ("SELECT 1 FROM seat WHERE id = 1 IS NOT TRUE", [], {("seat", None)}),
        ("SELECT 1 FROM seat WHERE CASE WHEN true AND id = 1 AND true THEN true END", [], {("seat", None)}),
        ("SELECT 1 FROM seat WHERE price %% 2 = 0 AND id = %s ORDER BY id", [3], {("seat", 3)}),
        ("SELECT 1 FROM seat WHERE id = %s", [True], {("seat", None)}),
        ("SELECT 1 FROM seat s WHERE s.id = (%s)::bigint", [1], {("seat", 1)}),
        ("SELECT 1 FROM seat AS s (id, row) WHERE s.id = 1", [], {("seat", None)}),
        ("SELECT 1 FROM seat WHERE id = %s::text", [1], {("seat", None)}),
        ("SELECT 1 FROM seat WHERE id = '1'", [], {("seat", None)}),
        ("SELECT 1 FROM seat WHERE id IN (%s, price)", [1], {("seat", 1), ("seat", None)}),
        ("SELECT 1 FROM seat WHERE id NOT IN (1)", [], {("seat", None)}),
        ("SELECT 1 FROM seat WHERE id = ANY(%s)", [[1]], {("seat", None)}),
        ("SELECT x.id FROM (SELECT price AS id FROM seat) x WHERE id = 1", [], {("seat", None)}),
        ("SELECT 1 FROM seat WHERE id = 1 UNION SELECT 2 FROM seat WHERE id = 2", [], {("seat", None)}),
        ("SELECT 1 FROM seat, ticket WHERE seat.id = 1", [], {("seat", None), ("ticket", None)}),
        ("SELECT extract(year FROM sold_at) FROM seat WHERE id = 1", [], {("seat", 1)}),
        ('SELECT "from x" FROM seat', [], {("seat", None)}),
        ("SELECT 1 FROM Seat WHERE ID = 1", [], {("seat", 1)}),
        (f"SELECT 1 FROM seat WHERE {' AND '.join(['price = 1'] * 2000)} AND id = 1", [], {("seat", 1)}),
    ],
)  # fmt: skip
def test_what_a_select_reads(sql: str, params: list[Any], reads: set[FootprintKey]) -> None:
    statement = read(sql, *params)

    assert (statement.kind, statement.reads, statement.locks) == ("SELECT", reads, set())


@pytest.mark.parametrize(
    ("clause", "mode"),
    [
        ("FOR UPDATE", Mode.UPDATE),
        ("FOR NO KEY UPDATE NOWAIT", Mode.NO_KEY_UPDATE),
        ("FOR SHARE SKIP LOCKED", Mode.SHARE),
        ('FOR KEY SHARE OF "seat"', Mode.KEY_SHARE),
    ],
)
def test_what_a_select_locks(clause: str, mode: Mode) -> None:
    assert read(f'SELECT "seat"."id" FROM "seat" WHERE "seat"."id" = %s {clause}', 3).locks == {(("seat", 3), mode)}


def test_rows_that_a_write_chooses_in_a_locking_subquery_are_locked_as_it_asks() -> None:
    first = "(SELECT id FROM seat WHERE price > 5 LIMIT 1 FOR UPDATE SKIP LOCKED)"

    taken = read(f"UPDATE seat SET row = 'A' WHERE id = {first}")

    assert taken.locks == {(("seat", None), Mode.NO_KEY_UPDATE), (("seat", None), Mode.UPDATE)}


def test_what_a_row_is_set_to_does_not_hide_which_row_it_is() -> None:
    many = read("UPDATE seat SET price = CASE WHEN id = %s THEN %s ELSE NULL END WHERE id IN (%s, %s)", 1, 5, 1, 2)

    assert many.writes == {("seat", 1), ("seat", 2)}


def test_what_writes_lock_and_change() -> None:
    plain = read('UPDATE "seat" SET "price" = ("seat"."price" + %s) WHERE "seat"."id" = %s', 10, 3)
    renamed = read('UPDATE "seat" SET "id" = %s WHERE "seat"."id" = %s', 4, 3)
    child = read('INSERT INTO "ticket" ("seat_id") VALUES (%s) RETURNING "ticket"."id"', 3)
    gone = read('DELETE FROM "seat" WHERE "seat"."id" IN (%s)', 3)

    assert (plain.writes, plain.locks) == ({("seat", 3)}, {(("seat", 3), Mode.NO_KEY_UPDATE)})
    assert {(("seat", None), Mode.UPDATE), (("seat", None), Mode.INSERT)} <= renamed.locks
    assert child.locks == {
        *((("ticket", None), mode) for mode in (Mode.INSERT, Mode.UNIQUE)), (("seat", 3), Mode.KEY_SHARE)
    }  # fmt: skip
    assert (("seat", 3), Mode.UPDATE) in gone.locks


TO_SEAT_3, TO_ANY_SEAT = {("seat", 3)}, {("seat", None)}


@pytest.mark.parametrize(
    ("sql", "params", "referred"),
    [
        ("INSERT INTO ticket (price, seat_id) VALUES (%s, %s)", [7, 3], TO_SEAT_3),
        ("INSERT INTO ticket (price, seat_id) VALUES (7, 3)", [], TO_SEAT_3),
        ("INSERT INTO ticket (price, seat_id) VALUES (%s, %s), (%s, %s)", [7, 3, 7, 4], TO_ANY_SEAT),
        ("INSERT INTO ticket (price, seat_id) VALUES (%s, DEFAULT)", [7], TO_ANY_SEAT),
        ("INSERT INTO ticket (price, seat_id) VALUES (%s, %s)", [7, "A"], TO_ANY_SEAT),
        ("INSERT INTO ticket (price) VALUES (%s)", [7], TO_ANY_SEAT),
        ("INSERT INTO ticket VALUES (%s, %s)", [7, 3], TO_ANY_SEAT),
        ("INSERT INTO ticket (seat_id) VALUES (%s) ON CONFLICT DO NOTHING", [3], TO_SEAT_3),
        ("INSERT INTO ticket (seat_id) VALUES (3) ON CONFLICT DO UPDATE SET seat_id = 4", [],
         {("seat", 3), ("seat", 4)}),
        ("UPDATE ticket SET price = 7 WHERE id = 1", [], set()),
        ("UPDATE ticket SET seat_id = %s WHERE id = 1", [3], TO_SEAT_3),
        ("UPDATE ticket SET seat_id = price WHERE id = 1", [], TO_ANY_SEAT),
        ("UPDATE ticket SET (seat_id, price) = (3, 4) WHERE id = 1", [], TO_ANY_SEAT),
    ],
)  # fmt: skip
def test_a_foreign_key_locks_the_row_that_is_named_if_its_column_is_written(
    sql: str, params: list[Any], referred: set[FootprintKey]
) -> None:
    assert {key for key, mode in read(sql, *params).locks if mode is Mode.KEY_SHARE} == referred


@pytest.mark.parametrize(
    "values",
    [
        {"triggers": TableTriggers(guards={"INSERT"})},
        {"foreign_keys": frozenset({ForeignKey(parent="seat", columns=("seat_id",), to_key=False)})},
        {"foreign_keys": frozenset({ForeignKey(parent="seat", columns=("seat_id", "price"))})},
    ],
    ids=["set by a trigger", "to another column", "of two columns"],
)
def test_a_foreign_key_locks_any_row_if_the_statement_does_not_say_which(values: Any) -> None:
    ticket = table("ticket", **{"foreign_keys": frozenset({ForeignKey(parent="seat", columns=("seat_id",))}), **values})
    statement = parse("INSERT INTO ticket (seat_id, price) VALUES (3, 7)", None, catalog=Catalog([*TABLES, ticket]))

    assert (("seat", None), Mode.KEY_SHARE) in statement.locks


def test_a_foreign_key_locks_any_row_once_keys_of_its_table_have_changed() -> None:
    catalog = Catalog(TABLES)
    catalog.note("rekeyed", {"seat"})
    statement = parse("INSERT INTO ticket (seat_id, price) VALUES (3, 7)", None, catalog=catalog)

    assert (("seat", None), Mode.KEY_SHARE) in statement.locks


@pytest.mark.parametrize(
    "sql",
    [
        "WITH RECURSIVE above AS (SELECT id FROM seat UNION SELECT id FROM above) SELECT * FROM above",
        "WITH gone AS (WITH all_of_them AS (SELECT 1) SELECT 1) SELECT * FROM gone",
        "WITH seat AS (SELECT 1) SELECT * FROM seat",
        "WITH gone AS (SELECT 1 SELECT * FROM gone",
        "WITH a AS (SELECT 1) SELECT * FROM seat WHERE id IN (WITH b AS (SELECT 1) SELECT * FROM b)",
        'SELECT * FROM "view"',
        'SELECT * FROM "unheard_of"',
        "SELECT * FROM public.seat",
        "SELECT price AS ticket FROM seat",
        "MERGE INTO seat USING ticket ON ticket.seat_id = seat.id WHEN MATCHED THEN DELETE",
        "SELECT 1 FROM seat WHERE id == 3",
        "SELECT 1 FROM seat WHERE",
        'DELETE FROM "seat" USING other.ticket',
        "SELECT E'it\\'s' FROM seat",
        "SELECT $a$ it's $a$ FROM seat",
        "SELECT 1 FROM seat WHERE row = '%s' AND id = %s",
        'SELECT id AS "%s" FROM seat',
        "SELECT row[1:%s] FROM seat",
    ],
)
def test_of_what_is_not_understood_all_is_counted(sql: str) -> None:
    statement = read(sql)

    assert statement == Statement(kind=sql.split(maxsplit=1)[0], hidden=True)


@pytest.mark.parametrize(
    "sql",
    [
        "WITH gone AS (DELETE FROM seat RETURNING id) SELECT my_function(id) FROM gone",
        "SELECT my_function(1)",
        "SELECT * FROM my_function(1)",
        'UPDATE "audited" SET "x" = 1',
        "SELECT 1; DELETE FROM seat",
        "SELECT 1 INTO TEMP copied FROM seat",
        "TRUNCATE seat",
        "SELECT set_config('lock_timeout', '1s', false)",
        "DO $$ BEGIN END $$",
        "fetch",
        "COMMIT AND CHAIN",
        "COMMIT PREPARED 'x'",
        "SET LOCAL search_path = other",
        "SET LOCAL transaction_isolation TO DEFAULT",
        "SELECT set_config('search_path', 'other', true)",
        'SELECT "my_function"(1)',
        "SELECT lower(row) FROM seat",
        "SELECT pid FROM pg_locks",
    ],
)
def test_what_is_not_certainly_understood_is_unknown(sql: str) -> None:
    assert read(sql).kind == "UNKNOWN"


def test_what_the_schema_does_is_said() -> None:
    assert read('UPDATE "audited" SET "x" = 1').reasons == AUDITED
    assert read('DELETE FROM "audited"').kind == "DELETE"
    assert read("SELECT my_function(1)").reasons == {"a statement calls my_function()"}


@pytest.mark.parametrize(
    ("sql", "changes_session"),
    [
        ("SET search_path = other", True),
        ("SET ROLE somebody", True),
        ("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED", True),
        ("SET default_transaction_isolation = 'serializable'", True),
        ("RESET ALL", True),
        ("CREATE TEMP TABLE seat (id int)", True),
        ("SELECT set_config('role', 'somebody', true)", True),
        ("SET lock_timeout = 1", False),
        ("SET enable_seqscan = on", True),
        ("SET TIME ZONE 'UTC'", False),
        ("SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = 5; SELECT f()", False),
        ("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE; SELECT f()", True),
        ("LOCK TABLE seat", False),
    ],
)
def test_what_changes_the_session_makes_all_that_follows_unknown(sql: str, changes_session: bool) -> None:
    statement = read(sql)

    assert (statement.kind, statement.changes_session) == ("UNKNOWN", changes_session)


@pytest.mark.parametrize("name", ["lockstep.edit_token", "lock_timeout"])
def test_harmless_settings_of_a_transaction_change_nothing(name: str) -> None:
    assert read("SELECT set_config(%s, %s, true)", name, "5").kind == "SELECT"
    assert read(f"SET LOCAL {name} = 5").kind == "LOCAL"


def test_a_row_that_refers_to_another_table_s_rows_is_read_with_them() -> None:
    gone = read("DELETE FROM seat USING ticket t WHERE t.seat_id = seat.id")

    assert gone.reads == {("seat", None), ("ticket", None)}


@pytest.mark.parametrize(
    ("assignments", "every"),
    [('"price" = 1, "row" = 2', False), ("price = (id + 1), row = 2", False), ('"price" = 1, "id" = 2', True),
     ("(price, id) = (1, 2), row = 3", True), ("price.id = 1", True),
     ("price = row IS DISTINCT FROM 'A', id = 3", True)],
)  # fmt: skip
def test_a_key_that_is_set_makes_any_row_meant(assignments: str, every: bool) -> None:
    assert read(f"UPDATE seat SET {assignments} WHERE id = 3").writes == {("seat", None if every else 3)}


def test_once_keys_change_they_tell_no_rows_of_the_table_apart() -> None:
    catalog = Catalog(TABLES)
    plain = "SELECT price FROM seat WHERE id = 3"
    before = parse(plain, None, catalog=catalog)
    parse("UPDATE seat SET id = 4 WHERE id = 3", None, catalog=catalog)

    assert (before.reads, parse(plain, None, catalog=catalog).reads) == ({("seat", 3)}, {("seat", None)})


def test_rows_given_as_arrays_are_inserted_as_any() -> None:
    columns = '"ticket" ("seat_id", "price")'
    many = read(
        f'INSERT INTO {columns} SELECT * FROM UNNEST((%s)::bigint[], (%s)::numeric(12, 2)[]) RETURNING "ticket"."id"',
        [1, 2], [3, 4],
    )  # fmt: skip

    assert many == read(f'INSERT INTO {columns} VALUES (%s, %s), (%s, %s) RETURNING "ticket"."id"', 1, 3, 2, 4)


UPDATE = 'UPDATE "seat" SET "price" = %s WHERE ("seat"."row" = %s AND "seat"."id" = %s) RETURNING "seat"."id"'
INSERT = 'INSERT INTO "ticket" ("seat_id", "price") SELECT "id", %s FROM changed'


def test_a_with_statement_touches_what_its_parts_touch() -> None:
    both = read(f"WITH changed AS ({UPDATE}) {INSERT}", 10, "A", 3, 5)
    three = read(f"WITH changed AS ({UPDATE}), booked AS ({INSERT}) SELECT * FROM changed", 10, "A", 3, 5)

    assert both == three
    assert (both.kind, both.reads, both.writes) == ("UPDATE", {("seat", 3)}, {("seat", 3), ("ticket", None)})
    assert both.locks == {
        (("seat", 3), Mode.NO_KEY_UPDATE),
        (("ticket", None), Mode.INSERT),
        (("ticket", None), Mode.UNIQUE),
        (("seat", None), Mode.KEY_SHARE),
    }


def test_advisory_locks_are_noticed_wherever_they_are_taken() -> None:
    taken = "(SELECT pg_advisory_xact_lock(%s)) IS NOT NULL"

    write = read(f'UPDATE "seat" SET "price" = 1 WHERE {taken} AND "seat"."id" = %s', 7, 3)
    hashed = read("SELECT pg_advisory_xact_lock_shared(hashtextextended(%s, 0))", None)

    assert write.writes == {("seat", 3)}
    assert write.locks == {(("seat", 3), Mode.NO_KEY_UPDATE), ((ADVISORY, 7), Mode.UPDATE)}
    assert hashed.locks == {((ADVISORY, None), Mode.SHARE)}


@pytest.mark.parametrize("sql", ["SAVEPOINT s1", "RELEASE SAVEPOINT s1", "SET LOCAL lock_timeout = 1"])
def test_what_no_other_actor_can_notice_is_local(sql: str) -> None:
    assert read(sql).kind == "LOCAL"


def test_the_isolation_level_is_noticed() -> None:
    assert read("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY").isolation == "serializable"
    assert read("set local transaction_isolation to 'repeatable read'").isolation == "repeatable read"
    assert read("begin isolation level repeatable read").isolation == "repeatable read"


@pytest.mark.parametrize(
    ("sql", "unordered"),
    [
        ("SELECT price FROM slot WHERE fund = 7", True),
        ("SELECT price FROM slot WHERE fund = 7 ORDER BY price", True),
        ("SELECT price FROM slot WHERE fund = 7 ORDER BY price, id", False),
        ("SELECT price FROM slot WHERE fund = 7 ORDER BY number", False),
        ("SELECT price FROM slot WHERE fund IN (7, 8) ORDER BY number", True),
        ("SELECT price FROM slot ORDER BY fund DESC, number FOR UPDATE", False),
        ("SELECT price FROM slot ORDER BY number", True),
        ("SELECT price FROM slot ORDER BY code", True),  # it may be NULL
        ("SELECT sum(price) + max(price), 1 FROM slot FOR UPDATE", True),
        ("SELECT array_agg(price) FROM slot", True),
        ("SELECT 1 AS a FROM slot WHERE fund = 7 LIMIT 1", False),
        ("SELECT fund, count(*) FROM slot GROUP BY fund", True),
        ("SELECT price FROM slot WHERE id = 3", False),
        ("UPDATE slot SET price = 1 WHERE fund = 7", True),
        ("DELETE FROM slot", True),
        ("UPDATE slot SET price = 1 WHERE id IN (SELECT id FROM slot WHERE fund = 7 ORDER BY id FOR UPDATE)", False),
        ("DELETE FROM slot WHERE price > 1 AND id IN (SELECT id FROM slot ORDER BY id FOR NO KEY UPDATE)", False),
        ("UPDATE slot SET price = 1 WHERE id IN (SELECT id FROM slot ORDER BY price FOR UPDATE)", True),
        ("UPDATE slot SET price = 1 WHERE id IN (SELECT id FROM slot ORDER BY id FOR SHARE)", True),
        ("UPDATE slot SET price = 1 WHERE id IN (SELECT id FROM slot ORDER BY id)", True),
        ("UPDATE slot SET price = 1 WHERE id NOT IN (SELECT id FROM slot ORDER BY id FOR UPDATE)", True),
        ("UPDATE slot SET price = 1 WHERE price IN (SELECT price FROM slot ORDER BY id FOR UPDATE)", True),
        ("INSERT INTO slot (price) VALUES (1)", False),
        ("INSERT INTO slot (price) SELECT price FROM slot", True),
    ],
)
def test_a_statement_that_takes_rows_without_an_order_by_a_key_sees_the_server_s(sql: str, unordered: bool) -> None:
    numbered = UniqueIndex(columns=("fund", "number"), required=True)
    slot = table("slot", indexes=(numbered, UniqueIndex(columns=("code",))))
    statement = parse(sql, None, catalog=Catalog([slot]))

    assert statement.unordered == ({"slot"} if unordered else set())
    assert statement.sees_order(2) is unordered
    assert statement.sees_order(None) is unordered


# The text


def test_nothing_is_logged_of_statements_that_are_not_about_rows(caplog: pytest.LogCaptureFixture) -> None:
    for sql in ("LOCK TABLE t", "COPY t TO STDOUT", "VACUUM t", "executemany gen pipeline", "CREATE TYPE t"):
        assert read_text(sql) is None

    assert caplog.records == []


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("/* a */ SELECT/**/1 -- b\n", "SELECT 1"),
        ("SELECT 1 --b\r\n  + 2", "SELECT 1 + 2"),
        ("SELECT /* a /* b */ 'c' */ 1 /*/ d */", "SELECT 1"),
        ("SELECT 2*-- a\n3//* b */4", "SELECT 2* 3/ 4"),
        (r"""SELECT '--', '\''/*', "/*""--" /* a */, E'\'--' -- b""", r"""SELECT '--', '\''/*', "/*""--" , E'\'--'"""),
        ("SELECT $$--$$, $a$/*$$ $a$, $1 --$$\n, $b$*/$b$", "SELECT $$--$$, $a$/*$$ $a$, $1 , $b$*/$b$"),
        (r"SELECT aE'\' --'", r"SELECT aE'\'"),
        ("SELECT e$a$--$a$", "SELECT e$a$"),
        ("SELECT '/*' /* it's 50%% */", "SELECT '/*'"),
        (b"/* a */", ""),
        # The driver counts parameters in comments, too.
        ("SELECT %s -- %s\n, %s -- %%s", "SELECT %s -- %s\n, %s"),
        ("SELECT 1 /* a /* b */", "SELECT 1"),  # refused by the server
        ("SELECT 'a -- b", "SELECT 'a -- b"),
    ],
)
def test_comments_are_left_out_and_what_looks_like_one_stays(sql: str | bytes, text: str) -> None:
    assert text_of(sql, None) == text
