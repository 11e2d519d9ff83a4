"""Rows that are looked for and then inserted, saved as a whole, or used and deleted, as candidates."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from django_lockstep.lab.finder.record.recording import RecordedStatement, Table, Unit
from tests.django_lockstep.lab.finder.builders import (
    ADVISORY,
    BOOKING,
    INSERT,
    LOCK_EVENT,
    SEAT,
    derive,
    insert,
    kinds,
    lock_event,
    look,
    partners,
    row,
    sent,
    site,
    unit,
    with_index,
)
from tests.django_lockstep.lab.finder.test_candidates import LOCK, READ, read_seat

COUNT = 'SELECT COUNT(*) AS "n" FROM "booking" WHERE "booking"."event_id" = %s'
COUNT_ALL = 'SELECT COUNT(*) AS "n" FROM "booking"'
LOOK_FOR_KEY = 'SELECT 1 AS "a" FROM "booking" WHERE "booking"."id" = %s LIMIT 1'
TRY = "SELECT pg_try_advisory_lock(%s)"
UNLOCK = "SELECT pg_advisory_unlock(%s)"
LEVEL = "repeatable read"
LAST = 'SELECT MAX("booking"."place") AS "m" FROM "booking" WHERE "booking"."event_id" = %s'


@pytest.mark.parametrize("read", [sent(COUNT, 3, rows=1), look(), sent(LAST, 3, rows=1)])
def test_a_row_that_the_look_would_have_found_is_one(read: RecordedStatement) -> None:
    assert kinds(unit(read, insert())) == ["check-then-insert"]


@pytest.mark.parametrize(
    "statements",
    [
        pytest.param([look(), insert(event=4)], id="the look would not have found it"),
        pytest.param([look(rows=1), insert()], id="what is inserted was there"),
        pytest.param([look(), insert(INSERT.replace("RETURNING", "ON CONFLICT DO NOTHING RETURNING"))], id="an upsert"),
        pytest.param([lock_event(), look(), insert()], id="the row that both refer to is locked"),
        pytest.param([sent(ADVISORY, 3), look(), insert()], id="an advisory lock is held"),
        pytest.param([look(isolation="serializable"), insert(isolation="serializable")], id="SERIALIZABLE"),
        pytest.param(
            [
                sent('INSERT INTO "event" ("places") VALUES (%s) RETURNING "event"."id"', 5, read=[row("event", 3)]),
                look(),
                insert(),
            ],
            id="the unit made the parent",
        ),
        pytest.param([insert(), sent(LOOK_FOR_KEY, 9), insert()], id="no other one looks for what was made here"),
        pytest.param(
            [sent(TRY, 5), look(), insert(), sent(UNLOCK, 5, in_=None)],
            id="the advisory lock of a session is given back after the COMMIT",
        ),
        pytest.param([sent(TRY, 5), look(in_=None), insert(in_=None), sent(UNLOCK, 5, in_=None)], id="after the write"),
    ],
)
def test_what_is_no_doubled_row(statements: list[RecordedStatement]) -> None:
    assert kinds(unit(*statements)) == []


@pytest.mark.parametrize(
    "statements",
    [
        pytest.param([lock_event(), sent(COUNT_ALL, rows=1), insert()], id="a parent that the look does not name"),
        pytest.param([sent(LOCK_EVENT.replace("UPDATE", "SHARE"), 3), look(), insert()], id="a shared lock of the row"),
        pytest.param([sent('LOCK TABLE "booking" IN ROW EXCLUSIVE MODE'), look(), insert()], id="of the table"),
        pytest.param([sent("SELECT pg_advisory_xact_lock_shared(%s)", 5), look(), insert()], id="an advisory one"),
        pytest.param([sent(TRY, 5), look(), insert(), sent(UNLOCK, 5)], id="given back before COMMIT"),
        pytest.param([sent(TRY, 5), look(), insert(), sent("SELECT pg_advisory_unlock_all()")], id="all of them"),
        pytest.param([sent(TRY, 5), look(), sent(UNLOCK, 5), insert(in_=None)], id="given back before the write"),
        # In a fresh test database both keys begin with 1.
        pytest.param([look(), sent(INSERT, 3, "x", 1, read=[row("booking", 3)])], id="a row with its parent's number"),
        pytest.param([look(isolation=LEVEL), insert(isolation=LEVEL)], id="a snapshot, which does not see new rows"),
    ],
)
def test_what_protects_from_nobody(statements: list[RecordedStatement]) -> None:
    assert kinds(unit(*statements)) == ["check-then-insert"]


ON_CODE, ON_PLACE = with_index(BOOKING, "event_id", "code"), with_index(BOOKING, "event_id", "place")
OF_CODE, OF_PLACE = (with_index(BOOKING, "event_id", predicate=(column,)) for column in ("code", "place"))


@pytest.mark.parametrize(
    ("read", "index", "is_refused"),
    [
        (look(), ON_CODE, True),
        (look(), ON_PLACE, False),
        (sent(COUNT, 3, rows=1), ON_CODE, False),
        (sent(COUNT, 3, rows=1), ON_PLACE, False),
        (sent(LAST, 3, rows=1), ON_CODE, False),
        (sent(LAST, 3, rows=1), ON_PLACE, True),
        # An index on some rows counts where the look is for these.
        (look(), OF_CODE, True),
        (look(), OF_PLACE, False),
    ],
)
def test_a_unique_index_over_what_was_looked_for_refuses_the_second_row(
    read: RecordedStatement, index: Mapping[str, Table], is_refused: bool
) -> None:
    (candidate,) = derive(unit(read, insert()), **index)

    assert candidate.kind == "check-then-insert"
    assert ("a unique index refuses one" in candidate.sentence) is is_refused


# Rows that are saved as a whole, used and deleted, or changed on a condition, as candidates.


GUEST = 'UPDATE "seat" SET "guest" = %s WHERE "seat"."id" = %s'
SAVE = 'UPDATE "seat" SET "price" = %s, "guest" = %s WHERE "seat"."id" = %s'
DELETE = 'DELETE FROM "seat" WHERE "seat"."id" IN (%s)'
FULL = {"price": 10, "guest": "Ada"}
COLUMNS = {"id": "bigint", "price": "numeric", "guest": "character varying"}


def saving(*before: RecordedStatement, sql: str = READ, name: str = "POST price/") -> Unit:
    return unit(*before, read_seat(sql, **FULL), sent(SAVE, 20, "Ada", 7, site=site(9)), name=name)


def test_a_row_that_is_saved_as_a_whole_is_one_with_who_changes_or_deletes_it() -> None:
    table = replace(SEAT, types=COLUMNS)
    change, again, remove = (
        unit(sent(sql, *params, site=site(1, "other")), name=name)
        for sql, params, name in (
            (GUEST, ("Bob", 7), "POST guest/"),
            (GUEST, ("Bob", 7), "POST price/"),
            (DELETE, (7,), "POST remove/"),
        )
    )

    def of_rows(*units: Unit) -> list[tuple[Any, ...]]:
        candidates = derive(*units, seat=table)
        return [(item.kind, item.columns, *partners(item)) for item in candidates if "-row-write" in item.kind]

    whole, deleted = ("whole-row-write", ("guest",), "POST guest/"), ("deleted-row-write", (), "POST remove/")
    assert of_rows(saving(), change, remove) == [deleted, whole]
    # Two that change the same column and write back the others, and one unit beside itself.
    assert of_rows(saving(), saving(name="POST discount/")) == of_rows(saving(), again) == []
    assert of_rows(saving(sql=LOCK), saving(lock_event(), sql=LOCK), change, remove) == []
    assert of_rows(replace(saving(), kind="call"), change) == [whole]


def test_a_row_that_is_read_used_and_deleted_is_one_and_deleted_by_that_method_the_last() -> None:
    used, by_method = (
        unit(read_seat(), sent(DELETE, 7, site=site(place)), name=name)
        for name, place in (("POST use/", 9), ("DELETE seats/", 8))
    )

    assert [(item.kind, item.unit) for item in derive(by_method, used)] == [
        ("check-then-act", "POST use/"),
        ("check-then-act", "DELETE seats/"),
    ]
    assert kinds(unit(read_seat(LOCK), sent(DELETE, 7))) == []
    # As Django reads what it is about to delete.
    assert kinds(unit(replace(read_seat(), site=site(9)), sent(DELETE, 7, site=site(9)))) == []


def test_a_condition_whose_count_may_be_ignored_is_one_if_more_is_written() -> None:
    sell = 'UPDATE "seat" SET "sold" = %s WHERE ("seat"."id" = %s AND NOT "seat"."sold")'

    assert kinds(unit(read_seat(sold=False), sent(sell, True, 7), insert())) == ["check-then-act"]
    assert kinds(unit(read_seat(sold=False), sent(sell, True, 7))) == []
    assert kinds(unit(sent(sell, True, 7), insert())) == []


def test_rows_that_are_added_are_raced_with_their_deletion() -> None:
    every = sent('SELECT "seat"."id" FROM "seat"', read=[row("seat", 7), row("seat", 8)])
    add = sent('INSERT INTO "seat" ("price") VALUES (%s) RETURNING "seat"."id"', 5, read=[row("seat", 9)])

    (clear,) = derive(unit(every, sent('DELETE FROM "seat"')), unit(add, name="POST add/"))

    assert (clear.kind, *partners(clear)) == ("write-skew", "POST add/")
