"""Runs as specs for PostgreSQL's isolationtester: what they say, and that it runs them."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction

from django_lockstep.lab.explorer import Scenario
from django_lockstep.lab.explorer.errors import NotWritable
from django_lockstep.lab.explorer.spec.permutations import escape_braces
from django_lockstep.lab.explorer.spec.specs import write_spec
from tests.django_lockstep.lab.explorer import stories
from tests.django_lockstep.lab.explorer.isolationtester import disagreements, printed, seen, tables
from tests.support.sessions import query, sessions, until
from tests.testapps.shop.models import OddSeat, Place, Seat, Ticket

pytestmark = pytest.mark.django_db(transaction=True)
HERE = "tests.django_lockstep.lab.explorer.test_specs"

NAIVE = stories.raising(stories.naive)


def alone(actor: stories.Actor, set_up: Any = stories.one_seat) -> Scenario:
    return Scenario(
        set_up=set_up, actors=[actor], invariant=lambda fixture: True, observe=lambda fixture: tables("shop_seat")
    )


def lines(text: str, start: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(start)]


def test_a_lost_update_is_written_with_literals_and_marks_and_seen_by_isolationtester() -> None:
    spec = write_spec(NAIVE, "AABBAB")

    assert "step a1_begin { BEGIN ISOLATION LEVEL READ COMMITTED; }" in spec.text
    update = r'step a2_update \{ UPDATE "shop_seat" SET "price" = 110.00 WHERE "shop_seat"."id" = \d+; \}'
    assert re.search(update, spec.text)
    assert "step b3_commit { COMMIT; }" in spec.text
    assert spec.text.split("permutation")[1].split() == [
        *("a1_begin", "a1_select", "a2_update", "b1_begin", "b1_select", "b2_update(a3_commit)"),
        *("a3_commit", "b3_commit", "end1"),
    ]
    shown = seen(printed(spec.text))["end1"]
    assert not spec.run.holds
    assert "110.00" in shown.rows[0]


def test_the_actor_that_closes_a_deadlock_loses() -> None:
    spec = write_spec(stories.opposite_transfers(), "ABAB")

    theirs = seen(printed(spec.text))
    assert theirs["b2_update"].error == "deadlock detected"
    assert theirs["a2_update"].waited


def test_tables_come_with_their_keys_rows_triggers_and_parents() -> None:
    def set_up() -> Any:
        return Ticket.objects.create(seat=Seat.objects.create(price=7, wishes={"a}": "it's \\ {1}"}), pk=int_uuid(5)).pk

    text = write_spec(alone(lambda pk: Ticket.objects.filter(pk=pk).delete(), set_up)).text

    assert "FOREIGN KEY (seat_id) REFERENCES shop_seat(id) DEFERRABLE INITIALLY DEFERRED" in text
    assert "CREATE TRIGGER lockstep_version_guard" in text
    assert 'INSERT INTO "shop_ticket" (id, seat_id) OVERRIDING SYSTEM VALUE VALUES' in text
    assert not seen(printed(text))["end1"].rows


def int_uuid(value: int) -> Any:
    from uuid import UUID

    return UUID(int=value)


def test_names_that_need_quotes_and_values_with_braces_arrive() -> None:
    def rename(fixture: Any) -> None:
        OddSeat.objects.filter(pk="a}'b").update(guest='{"x}\\": 1}')

    text = write_spec(alone(rename, lambda: OddSeat.objects.create(pk="a}'b", guest="{}"))).text

    assert seen(printed(text))["end1"].rows == [["a}'b", "2", '{"x}\\": 1}']]


@pytest.mark.parametrize(
    ("sql", "written"),
    [
        ("SELECT 1", "SELECT 1"),
        ("SELECT '{}'", r"SELECT E'{\x7D'"),
        (r"SELECT E'\'}'", r"SELECT E'\'\x7D'"),
        ("SELECT '\\}''x'", r"SELECT E'\\\x7D''x'"),
        ("SELECT $a$it's }$a$", r"SELECT E'it''s \x7D'"),
        ('SELECT "}"', r'SELECT U&"\007D"'),
    ],
)
def test_no_closing_brace_is_left(sql: str, written: str) -> None:
    assert escape_braces(sql) == written


def test_savepoints_have_short_names_and_several_statements_are_one_step() -> None:
    def act(pk: int) -> None:
        with transaction.atomic(), transaction.atomic():
            connection.cursor().executemany("UPDATE shop_seat SET price = %s WHERE id = %s", [[1, pk], [2, pk]])

    spec = write_spec(alone(act))

    assert "step a1_savepoint { SAVEPOINT sp1; }" in spec.text.replace('"', "")
    updates = [rf"UPDATE shop_seat SET price = {price} WHERE id = \d+;" for price in (1, 2)]
    assert re.search(rf"\{{ {' '.join(updates)} \}}", spec.text)
    assert list(disagreements(spec)) == []


def test_a_run_without_tables_is_a_spec_too() -> None:
    assert printed(write_spec(alone(lambda fixture: query("SELECT pg_advisory_xact_lock(1)"), int)).text)


def in_small_letters(pk: int) -> None:
    with transaction.atomic():
        connection.cursor().execute("set transaction isolation level serializable")
        Seat.objects.filter(pk=pk).update(price=1)


def test_sql_in_small_letters_is_a_statement_too() -> None:
    spec = write_spec(alone(in_small_letters))

    assert "set transaction isolation level serializable" in spec.text
    assert list(disagreements(spec)) == []


@pytest.fixture
def invoice_numbers(transactional_db: None) -> Iterator[None]:
    """A sequence that no table has."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE SEQUENCE invoice_numbers")
        cursor.execute("SELECT nextval('invoice_numbers')")
        yield
        cursor.execute("DROP SEQUENCE invoice_numbers")


def test_a_sequence_of_no_table_comes_along_with_its_position(invoice_numbers: None) -> None:
    def number(pk: int) -> None:
        query("SELECT nextval('invoice_numbers')")

    spec = write_spec(alone(number))

    assert "CREATE SEQUENCE invoice_numbers INCREMENT BY 1 START WITH" in spec.text
    assert list(disagreements(spec)) == []


def fetched(pk: int) -> None:
    with transaction.atomic():
        list(Seat.objects.iterator(chunk_size=1))


def copied(pk: int) -> None:
    with connection.cursor() as cursor, cursor.copy("COPY shop_seat TO STDOUT") as rows:
        list(rows)


@pytest.mark.parametrize(("actor", "step"), [(fetched, "Step 2 of A: 'FETCH"), (copied, "Step 1 of A: 'COPY")])
def test_what_is_no_statement_is_refused_with_its_step(actor: stories.Actor, step: str) -> None:
    with pytest.raises(NotWritable, match=step):
        write_spec(alone(actor))


def test_nothing_is_left_behind(no_kept_sessions: None) -> None:
    before = sessions()
    write_spec(NAIVE, "AABBAB")

    assert not Seat.objects.exists()
    assert not Place.objects.exists()
    until(lambda: sessions() == before, "the server to end the sessions")


def test_the_command_writes_the_schedule_that_it_was_given(tmp_path: Path) -> None:
    call_command("explore", f"{HERE}.NAIVE", "--schedule", "AAABBB", "--spec", str(tmp_path / "a.spec"))

    assert lines((tmp_path / "a.spec").read_text(), "# Schedule") == ["# Schedule AAABBB"]


def test_the_command_writes_the_simplest_wrong_schedule(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="Not as expected"):
        call_command("explore", f"{HERE}.NAIVE", "--spec", str(tmp_path / "a.spec"))

    assert re.search(r"^# Schedule (?!AAABBB)[AB]{6}$", (tmp_path / "a.spec").read_text(), re.MULTILINE)
