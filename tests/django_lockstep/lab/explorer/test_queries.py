"""What is read from the text of a statement."""

import pytest

from django_lockstep.lab.explorer.effects.operations import text_of
from django_lockstep.lab.explorer.effects.queries import Text, identifier, read_text


def read(sql: str) -> Text:
    text = read_text(sql)
    assert text is not None
    return text


@pytest.mark.parametrize(
    ("sql", "parts"),
    [
        ("WITH a AS (SELECT %s), b (x) AS NOT MATERIALIZED (SELECT (%s)) SELECT %s",
         [("a", "SELECT"), ("b", "SELECT"), ("", "SELECT")]),
        ('WITH "a)" AS MATERIALIZED (SELECT ")") DELETE FROM t', [("a)", "SELECT"), ("", "DELETE")]),
        ("INSERT INTO t VALUES (1)", [("", "INSERT")]),
        ("VALUES (1)", [("", "SELECT")]),
        ("WITH RECURSIVE a AS (SELECT 1) SELECT 2", []),
        ("WITH a AS (WITH b AS (SELECT 1) SELECT 1) SELECT 2", []),
    ],
)  # fmt: skip
def test_a_with_statement_is_taken_apart(sql: str, parts: list[tuple[str, str]]) -> None:
    assert [(part.name, part.verb) for part in read(sql).parts] == parts


def test_a_part_s_name_is_not_a_table_later() -> None:
    *_, last = read("WITH a AS (SELECT 1 FROM t) UPDATE u SET x = a.y FROM a, v WHERE u.id = a.id").parts

    assert (last.tables, last.target_name) == (["u", "v"], "u")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1; SELECT 2",
        "SELECT FROM WHERE (",
        "SELECT '%s'",
        'SELECT 1 AS "%s"',
        "SELECT a[1:%s] FROM t",
        "SELECT * FROM t WHERE a LIKE 'x%s'",
        "SAVEPOINT s",
        "FETCH 10 FROM c",
        "",
    ],
)
def test_what_is_not_understood_is_not_read(sql: str) -> None:
    assert read_text(sql) is None


def test_nothing_is_logged_of_statements_that_are_not_about_rows(caplog: pytest.LogCaptureFixture) -> None:
    for sql in ("LOCK TABLE t", "COPY t TO STDOUT", "VACUUM t", "executemany gen pipeline", "CREATE TYPE t"):
        assert read_text(sql) is None

    assert caplog.records == []


def test_words_that_are_neither_tables_nor_columns() -> None:
    assert {"t", "a", "b", "c", "d"}.isdisjoint(read("INSERT INTO t (a, b) SELECT c, 'x' FROM d").names)
    assert {"x", "u"} <= read("SELECT a AS x FROM t u").names


@pytest.mark.parametrize(
    ("condition", "columns"),
    [
        ("a = 1 AND (b = 2 AND (c IN (3)))", ["a", "b", "c"]),
        ("a = 1 OR b = 2", []),
        ("NOT a = 1", []),
        ("a <> 1 AND b NOT IN (1) AND c IS NOT NULL AND d = ANY(e)", ["d"]),
        ("(a = 1) IS NOT TRUE", []),
        ("a IN (SELECT 1)", []),
        ("a IS NOT DISTINCT FROM 1", []),
        (" AND ".join(["a = 1"] * 2000), ["a"] * 2000),
    ],
)
def test_conditions_that_every_row_fulfils(condition: str, columns: list[str]) -> None:
    (query,) = read(f"SELECT 1 FROM t WHERE {condition}").parts

    assert [identifier(column) for column, _ in query.comparisons] == columns


@pytest.mark.parametrize(
    ("assignments", "columns"),
    [
        ('a = 1, "B" = %s', ["a", "B"]),
        ("A[1] = 2", ["a"]),
        ("(a, b) = (1, 2)", [""]),
        ("a.b = 1", [""]),
    ],
)
def test_columns_that_are_set(assignments: str, columns: list[str]) -> None:
    assert [name for name, _ in read(f"UPDATE t SET {assignments}").whole.assigned] == columns
    upsert = f"INSERT INTO t VALUES (1) ON CONFLICT (a) DO UPDATE SET {assignments}"
    assert [name for name, _ in read(upsert).whole.assigned] == columns


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
