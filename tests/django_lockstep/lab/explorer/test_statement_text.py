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
