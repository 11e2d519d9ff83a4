"""What the database does beyond the statements: reduced and full search come to the same ends all the same."""

from contextlib import suppress
from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction

from django_lockstep.lab.explorer import Exploration, explore
from django_lockstep.lab.explorer.effects.catalog import Catalog, ForeignKey
from django_lockstep.lab.explorer.render.reports import RaceReport, as_html, as_text
from tests.django_lockstep.lab.explorer.programs import ends
from tests.django_lockstep.lab.explorer.schema_cases import CASES, PLAIN, Case
from tests.django_lockstep.lab.explorer.schemas import made, program, race_on, run

pytestmark = pytest.mark.django_db(transaction=True)


def both(case: Case) -> tuple[Exploration, Exploration]:
    others = ("CREATE TABLE made_b (id int PRIMARY KEY)",) if "REFERENCES made_b" in "".join(case.schema) else ()
    rows = (*(("INSERT INTO made_b VALUES (0)",) if others else ()), *case.rows)
    with made(*others, *case.schema):
        scenario = race_on(case.tables, rows, program(*case.first), program(*case.second))
        return explore(scenario, raises=DatabaseError), explore(scenario, reduction="none", raises=DatabaseError)


@pytest.mark.parametrize("name", CASES)
def test_what_the_database_does_by_itself_is_not_left_out(name: str) -> None:
    reduced, full = both(CASES[name])

    assert reduced.verdict == full.verdict == "holds", (reduced.reason, full.reason)
    assert ends(reduced) == ends(full)
    assert len(ends(full)) > 1, "this case would be the same without the reduction"
    assert bool(reduced.deadlocks) == bool(full.deadlocks)
    assert reduced.opaque == ((CASES[name].told,) if CASES[name].told else ())


def test_reports_name_what_depends_on_everything() -> None:
    case = CASES["trigger that notifies"]
    result, _ = both(case)
    report = RaceReport(name="numbers", exploration=result)

    assert f"depends on everything: {case.told}" in as_text([report])
    assert f"Depends on everything: <bdi>{case.told}</bdi>" in as_html([report])
    assert result.to_dict()["opaque"] == (case.told,)


def test_in_which_order_a_statement_locks_rows_depends_on_who_changed_them_before() -> None:
    def change_all(fixture: bool) -> None:
        run("UPDATE made_a SET v = v + 1 WHERE id = 1")
        run("UPDATE made_a SET v = v + 1 WHERE v < 9")

    def change_in_order(fixture: bool) -> None:
        run("UPDATE made_a SET v = v + 1 WHERE id = 2")
        with transaction.atomic():
            run("UPDATE made_a SET v = v + 1 WHERE id = 1")
            run("UPDATE made_a SET v = v + 1 WHERE id = 2")

    with made(PLAIN):
        scenario = race_on(("made_a",), ("INSERT INTO made_a VALUES (1, 0), (2, 0)",), change_all, change_in_order)
        reduced, full = (explore(scenario, reduction=reduction) for reduction in ("dpor", "none"))

    assert reduced.deadlocks
    assert full.deadlocks
    assert ends(reduced) == ends(full)


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ("a int REFERENCES made_a", ForeignKey(parent="made_a", columns=("a",))),
        ("a int REFERENCES made_a (v)", ForeignKey(parent="made_a", columns=("a",), to_key=False)),
        ("v int, a int GENERATED ALWAYS AS (v) STORED REFERENCES made_a", ForeignKey(parent="made_a", columns=("*",))),
        ("a int, w int, FOREIGN KEY (w, a) REFERENCES made_a (id, v)",
         ForeignKey(parent="made_a", columns=("a", "w"), to_key=False)),
    ],
)  # fmt: skip
def test_foreign_keys_are_read_with_their_columns(column: str, expected: ForeignKey) -> None:
    parent = "CREATE TABLE made_a (id int PRIMARY KEY, v int UNIQUE, UNIQUE (id, v))"
    with made(parent, f"CREATE TABLE made_b (id int PRIMARY KEY, {column})"), connection.cursor() as cursor:
        table = Catalog.load(cursor).get("made_b")

    assert table is not None
    assert table.foreign_keys == {expected}


@pytest.mark.parametrize(
    "sql",
    [
        pytest.param("INSERT INTO made_b VALUES (1, 9)", id="refused at COMMIT"),
        "CALL made_add()",
        "COPY made_b FROM stdin",
    ],
)
def test_the_next_statement_is_counted_from_zero(sql: str) -> None:
    def act(fixture: Any) -> int:
        with suppress(IntegrityError), connection.cursor() as cursor:
            if sql.startswith("COPY"):
                with cursor.copy(sql) as copy:
                    copy.write_row([1, 8])
            else:
                cursor.execute(sql)
        return len(run("SELECT id FROM made_b WHERE id = 1"))

    with made(
        "CREATE TABLE made_a (id int PRIMARY KEY)",
        "CREATE TABLE made_b (id int PRIMARY KEY, a int REFERENCES made_a DEFERRABLE INITIALLY DEFERRED)",
        "CREATE PROCEDURE made_add() LANGUAGE sql AS 'INSERT INTO made_b VALUES (1, 8)'",
    ):
        scenario = race_on(
            ("made_a", "made_b"), ["INSERT INTO made_a VALUES (8)"], act, program("INSERT INTO made_a VALUES (9)")
        )
        reduced, full = explore(scenario), explore(scenario, reduction="none")

    assert reduced.verdict == full.verdict == "holds", (reduced.reason, full.reason)
    assert ends(reduced) == ends(full)
