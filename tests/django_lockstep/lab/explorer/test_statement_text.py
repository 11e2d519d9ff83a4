"""What the texts of statements say."""

import pytest

from django_lockstep.lab.explorer.effects.statement_text import Value, read_statement

P0, P1 = Value(params=(0,)), Value(params=(1,))


def equalities(sql: str) -> dict[str, Value]:
    return {condition.column: condition.value for condition in read_statement(sql).equalities}


@pytest.mark.parametrize(
    ("condition", "read"),
    [
        ('"t"."a" = %s', {"a": P0}),
        ('("t"."a" = %s AND ("t"."b" = %s AND "t"."c" > %s))', {"a": P0, "b": P1}),
        ('"t"."a" IN (%s, %s)', {"a": Value(params=(0, 1))}),
        ("a = ANY(%s)", {"a": P0}),
        ('"t"."a" IS NULL', {"a": Value(literal="NULL")}),
        ('("t"."a" AND NOT "t"."b")', {"a": Value(literal="True"), "b": Value(literal="False")}),
        ("a = %s::int", {"a": P0}),
        ("a IS NOT NULL AND b IS NOT TRUE", {}),
        ("10 %% 3 = 1 AND a = %s", {"a": P0}),
        ('("t"."a" = %s OR "t"."b" = %s)', {}),
        ('NOT ("t"."a" = %s)', {}),
        ('UPPER("t"."a"::text) = UPPER(%s)', {}),
        ('"t"."a" IN (SELECT U0."id" FROM "u" U0 WHERE U0."b" = %s)', {}),
    ],
)
def test_the_conditions_that_name_values(condition: str, read: dict[str, Value]) -> None:
    assert equalities(f'SELECT * FROM "t" WHERE {condition}') == read


def test_every_column_that_decides_is_known_with_its_table() -> None:
    sql = (
        'SELECT "t"."id" FROM "t" INNER JOIN "u" T3 ON ("t"."u_id" = T3."id") '
        'WHERE (T3."name" LIKE %s OR lower("t"."code") = %s)'
    )

    assert read_statement(sql).tested == {("u", "name"), ("t", "code")}


@pytest.mark.parametrize(
    ("sql", "looks", "summed"),
    [
        ('SELECT "t"."a" FROM "t"', "rows", set()),
        ('SELECT "t"."a" FROM "t" LIMIT 21', "rows", set()),
        ('SELECT COUNT(*) AS "n" FROM "t"', "aggregate", set()),
        ('SELECT MAX("t"."a") AS "n" FROM "t"', "aggregate", {("t", "a")}),
        ('SELECT 1 AS "a" FROM "t" WHERE "t"."b" = %s LIMIT 1', "exists", set()),
        ('SELECT "t"."id" FROM "t" ORDER BY "t"."a" DESC LIMIT 1', "first", {("t", "a")}),
    ],
)
def test_what_a_select_tells(sql: str, looks: str, summed: set[tuple[str, str]]) -> None:
    text = read_statement(sql)

    assert (text.verb, text.table, text.looks, text.summed) == ("SELECT", "t", looks, summed)


@pytest.mark.parametrize(
    ("clause", "locked"),
    [
        ("FOR UPDATE", {"t", "u"}),
        ("FOR NO KEY UPDATE", {"t", "u"}),
        ('FOR UPDATE OF "t" SKIP LOCKED', {"t"}),
        ("FOR UPDATE OF T2 NOWAIT", {"u"}),
        ("FOR SHARE", set()),
        ("FOR KEY SHARE", set()),
        ("", set()),
    ],
)
def test_what_a_select_locks(clause: str, locked: set[str]) -> None:
    sql = f'SELECT "t"."id" FROM "t" INNER JOIN "u" T2 ON ("t"."u_id" = T2."id") {clause}'

    assert read_statement(sql).locked == locked


def test_what_an_update_sets() -> None:
    text = read_statement('UPDATE "t" SET "a" = %s, "b" = ("t"."b" + %s), "c" = NULL, "d" = true WHERE "t"."id" = %s')

    assert (text.verb, text.table) == ("UPDATE", "t")
    assert text.assignments == {
        "a": P0,
        "b": Value(columns=frozenset({"b"})),
        "c": Value(literal="NULL"),
        "d": Value(literal="True"),
    }
    assert text.equalities[0].value == Value(params=(2,))


@pytest.mark.parametrize(
    "rows", ["VALUES (%s, %s)", "VALUES (%s, %s), (%s, %s)", "SELECT * FROM UNNEST((%s)::integer[], (%s)::text[])"]
)
def test_what_an_insert_puts_into_its_first_row(rows: str) -> None:
    text = read_statement(f'INSERT INTO "t" ("a", "b") {rows} RETURNING "t"."id"')

    assert (text.verb, text.table, text.upsert) == ("INSERT", "t", False)
    assert text.assignments == {"a": P0, "b": P1}


@pytest.mark.parametrize("action", ["DO NOTHING", '("a") DO UPDATE SET "b" = EXCLUDED."b"'])
def test_an_upsert(action: str) -> None:
    assert read_statement(f'INSERT INTO "t" ("a", "b") VALUES (%s, %s) ON CONFLICT {action}').upsert


@pytest.mark.parametrize(
    ("sql", "groups"),
    [
        ("SELECT pg_advisory_xact_lock(%s)", ("xact_", "lock", "%s)")),
        ("SELECT pg_try_advisory_xact_lock_shared(1, 2)", None),
        ("SELECT pg_advisory_unlock_all()", (None, "unlock", ")")),
    ],
)
def test_advisory_locks(sql: str, groups: tuple[str | None, ...] | None) -> None:
    match = read_statement(sql).advisory

    assert (match and match.groups()) == groups


@pytest.mark.parametrize(
    ("sql", "verb", "table"),
    [
        ('DELETE FROM "t" WHERE "t"."id" IN (%s)', "DELETE", "t"),
        ('WITH x AS (SELECT 1) UPDATE "t" SET "a" = %s', "UPDATE", "t"),
        ('UPDATE "other"."t" SET "a" = %s', "UPDATE", "other.t"),
        ("SELECT FROM WHERE (", "SELECT", ""),
    ],
)
def test_verbs_and_tables(sql: str, verb: str, table: str) -> None:
    text = read_statement(sql)

    assert (text.verb, text.table) == (verb, table)


def test_lock_table_locks_the_table() -> None:
    text = read_statement('LOCK TABLE "t" IN EXCLUSIVE MODE')

    assert (text.verb, text.locked, text.tables) == ("LOCK", {"t"}, {"t"})


@pytest.mark.parametrize("sql", ["SELECT FROM WHERE (", "SELECT 1 FROM t UNION SELECT 2 FROM u", 'DELETE FROM "t"'])
def test_other_statements_are_not_one_select(sql: str) -> None:
    assert not read_statement(sql).is_select
