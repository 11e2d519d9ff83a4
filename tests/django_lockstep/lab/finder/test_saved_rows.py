"""Rows that are saved as a whole, used and deleted, or changed on a condition, as candidates."""

from dataclasses import replace
from typing import Any

from django_lockstep.lab.finder.record.recording import RecordedStatement, Unit
from tests.django_lockstep.lab.finder.builders import (
    SEAT,
    derive,
    insert,
    kinds,
    lock_event,
    partners,
    row,
    sent,
    site,
    unit,
)
from tests.django_lockstep.lab.finder.test_candidates import LOCK, READ, read_seat

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
    assert of_rows(saving(), change, remove) == [whole, deleted]
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
