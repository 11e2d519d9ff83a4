"""Candidates of each kind, and beside each what keeps it from being one."""

import itertools
from dataclasses import replace
from typing import Any

import pytest

from django_lockstep.lab.finder.confirm.remedies import REMEDIES
from django_lockstep.lab.finder.derive.history import History
from django_lockstep.lab.finder.derive.pair_races import write_skews
from django_lockstep.lab.finder.record.recording import RecordedStatement, Unit
from tests.django_lockstep.lab.finder.builders import (
    ADVISORY,
    SEAT,
    TABLES,
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

READ = 'SELECT "seat"."id", "seat"."price" FROM "seat" WHERE "seat"."id" = %s LIMIT 21'
LOCK = READ + ' FOR NO KEY UPDATE OF "seat"'
WRITE = 'UPDATE "seat" SET "price" = %s WHERE "seat"."id" = %s'


def read_seat(sql: str = READ, **values: object) -> RecordedStatement:
    fields: dict[str, Any] = {"in_": values.pop("in_", 0), "isolation": values.pop("isolation", "read committed")}
    return sent(sql, 7, read=[row("seat", 7, **{"price": 10, "event_id": 3, **values})], **fields)


# Read, computed, written.


def test_a_value_computed_from_what_was_read_unlocked_is_one() -> None:
    (candidate,) = derive(unit(read_seat(), sent(WRITE, 20, 7), inputs=[7]))

    assert (candidate.kind, candidate.table, candidate.columns) == ("read-modify-write", "seat", ("price",))
    assert (candidate.unit, candidate.unit_kind) == ("POST sell/<int:pk>/", "request")
    assert candidate.read is not None
    assert (candidate.read.sql, candidate.write.sql) == (READ, WRITE)
    assert "box.Seat.price is read at box/office.py:1 without a lock, and written at box/office.py:2" in (
        candidate.sentence
    )


@pytest.mark.parametrize(
    "statements",
    [
        pytest.param([read_seat(LOCK), sent(WRITE, 20, 7)], id="the row is locked when it is read"),
        pytest.param([lock_event(), read_seat(), sent(WRITE, 20, 7)], id="a row that it refers to is locked"),
        pytest.param([sent(ADVISORY, 5), read_seat(), sent(WRITE, 20, 7)], id="an advisory lock is held"),
        pytest.param([sent('LOCK TABLE "seat"'), read_seat(), sent(WRITE, 20, 7)], id="the table is locked"),
        pytest.param(
            [sent('UPDATE "seat" SET "sold" = %s WHERE "seat"."id" = %s', True, 7), read_seat(), sent(WRITE, 20, 7)],
            id="it was written before it was read",
        ),
        pytest.param(
            [
                read_seat(version=1),
                sent(
                    'UPDATE "seat" SET "price" = %s, "version" = %s WHERE ("seat"."id" = %s AND "seat"."version" = %s)',
                    *(20, 2, 7, 1),
                ),
            ],
            id="the version is in the WHERE",
        ),
        pytest.param(
            [
                read_seat(),
                sent('UPDATE "seat" SET "price" = %s WHERE ("seat"."id" = %s AND "seat"."price" = %s)', 20, 7, 10),
            ],
            id="what is written is also tested",
        ),
        pytest.param(
            [read_seat(isolation="repeatable read"), sent(WRITE, 20, 7, isolation="repeatable read")],
            id="REPEATABLE READ refuses to overwrite what is newer",
        ),
        pytest.param([read_seat(), sent(WRITE, 10, 7)], id="the value is the one that was read"),
        pytest.param([read_seat(), sent(WRITE, 20, 8)], id="another row is written"),
        pytest.param([read_seat(), sent(WRITE, 20, 7, rows=0)], id="nothing is changed"),
        pytest.param(
            [
                sent('INSERT INTO "seat" ("price") VALUES (%s) RETURNING "seat"."id"', 10, read=[row("seat", 7)]),
                read_seat(),
                sent(WRITE, 20, 7),
            ],
            id="the unit made the row",
        ),
        pytest.param(
            [
                read_seat(changed_at="2026-01-01"),
                sent('UPDATE "seat" SET "changed_at" = %s WHERE "seat"."id" = %s', "now", 7),
            ],
            id="the time of the change",
        ),
        pytest.param(
            [
                sent(
                    'SELECT * FROM "django_session" WHERE "django_session"."session_key" = %s',
                    "k",
                    read=[row("django_session", "k", session_data="a")],
                ),
                sent(
                    'UPDATE "django_session" SET "session_data" = %s WHERE "django_session"."session_key" = %s',
                    "b",
                    "k",
                ),
            ],
            id="a session",
        ),
    ],
)
def test_what_is_none(statements: list[RecordedStatement]) -> None:
    assert kinds(unit(*statements)) == []


def test_neither_lock_nor_level_reaches_over_two_transactions() -> None:
    level = "repeatable read"

    for read, write in (
        (read_seat(LOCK), sent(WRITE, 20, 7, in_=1)),
        (read_seat(isolation=level), sent(WRITE, 20, 7, in_=1, isolation=level)),
    ):
        assert kinds(unit(read, write)) == ["read-modify-write"]


def test_a_row_is_known_by_what_was_read_of_it_too() -> None:
    by_guest = 'UPDATE "seat" SET "price" = %s WHERE "seat"."guest" = %s'

    assert kinds(unit(read_seat(guest="Ada"), sent(by_guest, 20, "Ada"))) == ["read-modify-write"]
    assert kinds(unit(read_seat(guest="Ada"), sent(by_guest, 20, "Bob"))) == []


def test_each_row_of_a_bulk_update_has_its_own_value() -> None:
    case = 'CASE WHEN ("seat"."id" = %s) THEN %s WHEN ("seat"."id" = %s) THEN %s ELSE NULL END'
    bulk = f'UPDATE "seat" SET "price" = {case} WHERE "seat"."id" IN (%s, %s)'

    assert kinds(unit(read_seat(), sent(bulk, 8, 10, 7, 20, 8, 7))) == ["read-modify-write"]
    assert kinds(unit(read_seat(), sent(bulk, 8, 20, 7, 10, 8, 7))) == []


def test_a_value_that_stands_in_the_statement_is_known_too() -> None:
    sell, clear = (f'UPDATE "seat" SET {value} WHERE "seat"."id" = %s' for value in ('"sold" = true', '"guest" = NULL'))

    assert kinds(unit(read_seat(sold=False), sent(sell, 7))) == ["check-then-act"]
    assert kinds(unit(read_seat(sold=True), sent(sell, 7))) == []
    assert kinds(unit(read_seat(guest="Ada"), sent(clear, 7))) == ["check-then-act"]


def test_numbers_come_before_states_and_these_before_edits() -> None:
    sold = sent('UPDATE "seat" SET "sold" = %s WHERE "seat"."id" = %s', True, 7)
    guest = sent('UPDATE "seat" SET "guest" = %s WHERE "seat"."id" = %s', "Bob", 7)
    read = read_seat(sold=False, guest="Ada")

    candidates = derive(unit(read, guest, sold, sent(WRITE, 20, 7), inputs=["Bob"]))

    assert [(candidate.kind, candidate.columns) for candidate in candidates] == [
        ("read-modify-write", ("price",)),
        ("check-then-act", ("sold",)),
        ("read-modify-write", ("guest",)),
    ]
    assert candidates[-1].sentence.endswith("the last writer wins.")


def test_of_one_write_the_worst_consequence_counts() -> None:
    for columns, values in (('"sold" = %s, "price" = %s', (True, 20)), ('"price" = %s, "sold" = %s', (20, True))):
        both = sent(f'UPDATE "seat" SET {columns} WHERE "seat"."id" = %s', *values, 7)
        (candidate,) = derive(unit(read_seat(sold=False), both))
        assert (candidate.kind, candidate.columns) == ("read-modify-write", ("price",))


# Read, then changed in place.


IN_PLACE = 'UPDATE "seat" SET "price" = ("seat"."price" - %s) WHERE "seat"."id" = %s'
IF_ENOUGH = 'UPDATE "seat" SET "price" = ("seat"."price" - %s) WHERE ("seat"."id" = %s AND "seat"."price" >= %s)'


def test_a_change_in_place_is_one_without_a_condition_or_lock_and_if_it_was_read() -> None:
    assert kinds(unit(read_seat(), sent(IN_PLACE, 1, 7))) == ["check-then-act"]
    assert kinds(unit(read_seat(), sent(IF_ENOUGH, 1, 7, 1))) == []
    assert kinds(unit(read_seat(LOCK), sent(IN_PLACE, 1, 7))) == []
    assert kinds(unit(sent(IN_PLACE, 1, 7))) == []


# Two transactions that do different things.


ON_SALE = 'SELECT COUNT(*) AS "n" FROM "seat" WHERE ("seat"."event_id" = %s AND NOT "seat"."sold")'
SELL = 'UPDATE "seat" SET "sold" = %s WHERE "seat"."id" = %s'


def test_a_count_and_then_a_change_of_one_of_the_rows_is_a_write_skew() -> None:
    (candidate,) = derive(unit(sent(ON_SALE, 3, rows=1), sent(SELL, True, 7)))

    assert (candidate.kind, candidate.columns) == ("write-skew", ("sold",))


def test_a_loop_has_as_many_skews_as_its_statements_have_texts() -> None:
    """Not as many as pairs of them: a request of a large project sends hundreds of each."""
    at: Any = {"site": site(9)}
    turns = [(sent(ON_SALE, event, rows=1, **at), sent(SELL, True, event, **at)) for event in range(3, 13)]
    loop = unit(lock_event(), *itertools.chain(*turns), *itertools.chain(*turns))

    (skew,) = write_skews([History(loop, TABLES)])
    # Of the first event nothing is shown: it is locked.
    assert (skew.read.statement.params, skew.write.statement.params) == (("=4",), ("True", "=4"))


@pytest.mark.parametrize(
    "statements",
    [
        pytest.param([lock_event(), sent(ON_SALE, 3, rows=1), sent(SELL, True, 7)], id="the parent is locked"),
        pytest.param([sent(ADVISORY, 3), sent(ON_SALE, 3, rows=1), sent(SELL, True, 7)], id="an advisory lock"),
        pytest.param(
            [sent(ON_SALE, 3, rows=1, isolation="serializable"), sent(SELL, True, 7, isolation="serializable")],
            id="SERIALIZABLE",
        ),
        pytest.param([sent(ON_SALE, 3, rows=1), sent(WRITE, 20, 7)], id="another column is changed"),
        pytest.param(
            [
                sent(
                    'SELECT "seat"."id" FROM "seat" WHERE NOT "seat"."sold" FOR UPDATE',
                    read=[row("seat", 7), row("seat", 8)],
                ),
                sent(SELL, True, 7),
            ],
            id="the rows are locked when they are read",
        ),
    ],
)
def test_what_is_no_write_skew(statements: list[RecordedStatement]) -> None:
    assert kinds(unit(*statements)) == []


def test_a_lock_on_some_of_the_rows_read_is_no_protection_from_write_skew() -> None:
    both = sent('SELECT "seat"."id" FROM "seat" WHERE NOT "seat"."sold"', read=[row("seat", 7), row("seat", 8)])

    locks = [sent(LOCK, key, read=[row("seat", key)]) for key in (7, 8)]

    assert kinds(unit(locks[0], both, sent(SELL, True, 7))) == ["write-skew"]
    assert "write-skew" not in kinds(unit(*locks, both, sent(SELL, True, 7)))


def test_a_unique_index_over_what_was_looked_for_keeps_a_change_apart_too() -> None:
    look_for_guest = 'SELECT 1 AS "a" FROM "seat" WHERE "seat"."guest" = %s LIMIT 1'
    rename = 'UPDATE "seat" SET "guest" = %s WHERE "seat"."id" = %s'
    renamed = unit(sent(look_for_guest, "Bob"), sent(rename, "Bob", 7))

    assert kinds(renamed) == ["write-skew"]
    assert kinds(renamed, **with_index(SEAT, "guest")) == []


def transfer(first: int, second: int, number: int) -> Unit:
    statements = [sent(LOCK, key, read=[row("seat", key)], site=site(line)) for key, line in ((first, 1), (second, 2))]
    return unit(*statements, number=number, key_order=("=7", "=8"))


def test_locks_in_both_orders_are_one_and_in_one_order_are_none() -> None:
    assert kinds(transfer(7, 8, 0), transfer(8, 7, 1)) == ["lock-order"]
    assert kinds(transfer(7, 8, 0), transfer(7, 8, 1)) == []
    assert kinds(transfer(7, 8, 0)) == ["lock-order"]  # seen once
    loop = [sent(IN_PLACE, 1, key, site=site(1)) for key in (7, 8, 9)]
    assert kinds(unit(*loop)) == ["lock-order"]


def test_rows_that_one_statement_locked_together_are_changed_in_any_order() -> None:
    both = sent('SELECT "seat"."id" FROM "seat" ORDER BY 1 FOR UPDATE', read=[row("seat", 7), row("seat", 8)])
    writes = [sent(IN_PLACE, 1, key, site=site(key)) for key in (8, 7)]

    assert kinds(unit(both, *writes), unit(both, *reversed(writes), number=1)) == []


def test_locks_of_two_tables_in_both_orders() -> None:
    seat = sent(LOCK, 7, read=[row("seat", 7)])

    candidates = derive(unit(seat, lock_event()), unit(lock_event(), seat, name="POST close/"))

    assert [(candidate.kind, candidate.unit, *partners(candidate)) for candidate in candidates] == [
        ("lock-order", "POST sell/<int:pk>/", "POST close/"),
        ("lock-order", "POST close/", "POST sell/<int:pk>/"),
    ]


# Locked too late.


def test_a_lock_that_is_taken_after_the_read_is_late() -> None:
    only_key = 'SELECT "seat"."id" FROM "seat" WHERE "seat"."id" = %s FOR UPDATE'

    late = derive(unit(read_seat(), sent(only_key, 7, read=[row("seat", 7)]), sent(WRITE, 20, 7)))
    again = derive(unit(read_seat(), read_seat(LOCK), sent(WRITE, 20, 7)))

    assert [candidate.kind for candidate in (*late, *again)] == ["late-lock", "late-lock"]
    assert late[0].rank < again[0].rank


# Groups.


def test_each_unit_that_reaches_a_write_has_a_candidate_with_the_shortest_as_witness() -> None:
    short = unit(read_seat(), sent(WRITE, 20, 7, site=site(9)), number=3)
    long = unit(lock_event(), read_seat(), sent(WRITE, 20, 7, in_=1, site=site(9)), number=1)
    other = unit(lock_event(), read_seat(), sent(WRITE, 20, 7, in_=1, site=site(9)), name="POST resell/", number=0)

    candidates = derive(long, other, short)

    assert {candidate.unit: [witness.number for witness in candidate.witnesses] for candidate in candidates} == {
        "POST resell/": [0],
        "POST sell/<int:pk>/": [3, 1],
    }
    assert len({candidate.id for candidate in candidates}) == 2


def test_further_units_of_a_write_come_after_the_first_ones_of_all() -> None:
    write = sent(WRITE, 20, 7, site=site(9))
    sales = [unit(read_seat(), write, name=name) for name in ("POST a/", "POST b/", "POST c/")]
    call = unit(read_seat(), write, name="box.office.sell", kind="call")
    other = unit(read_seat(sold=False), sent(SELL, True, 7, site=site(10)), name="POST z/")

    units = [candidate.unit for candidate in derive(call, *sales, other)]
    assert units == ["POST a/", "POST z/", "POST b/", "POST c/", "box.office.sell"]


def test_one_of_each_path_comes_first() -> None:
    first, second = (unit(read_seat(), sent(WRITE, 20, 7, site=site(9)), test=name) for name in ("test_a", "test_b"))
    locking = unit(lock_event(), read_seat(), sent(WRITE, 20, 7, in_=1, site=site(9)), test="test_c")
    again = unit(read_seat(), sent(WRITE, 20, 7, site=site(9)), test="test_a", number=1)

    (candidate,) = derive(first, second, locking, again)

    # The one of test_c sends another statement; the second one of test_a can be raced with the one before it.
    assert [(witness.test, witness.number) for witness in candidate.witnesses] == [
        ("test_a", 0),
        ("test_a", 1),
        ("test_c", 0),
        ("test_b", 0),
    ]


def test_a_test_that_does_more_afterwards_comes_first() -> None:
    def trail(test: str, *later: Unit) -> list[Unit]:
        first = unit(read_seat(), sent(WRITE, 20, 7, site=site(9)), test=test)
        return [first, *(replace(follower, test=test, number=number) for number, follower in enumerate(later, 1))]

    refused = Unit(test="", kind="request", name="POST sell/<int:pk>/", number=0, only_read="no seat")
    elsewhere = replace(refused, name="GET seats/")
    (candidate,) = derive(
        *trail("test_a"), *trail("test_b", elsewhere), *trail("test_c", elsewhere, refused), *trail("test_d", refused)
    )

    assert [witness.test for witness in candidate.witnesses] == ["test_c", "test_d", "test_a", "test_b"]
    last, _, alone, _ = candidate.witnesses
    assert alone.shows_no_more_than(last)
    assert not last.shows_no_more_than(alone)


def test_one_that_deletes_what_is_read_is_its_last_partner() -> None:
    edit = unit(read_seat(), sent(WRITE, 20, 7))
    writes = sent(WRITE, 5, 7, site=site(20, "reprice")), sent(SELL, True, 8)
    set_price = unit(*writes, name="POST price/", number=2)
    remove = unit(sent("DELETE FROM seat WHERE id = %s", 7, site=site(30, "remove")), name="POST remove/")

    assert partners(derive(edit, remove)[0]) == ("POST remove/",)
    candidate = derive(edit, remove, set_price)[0]
    assert partners(candidate) == ("POST price/", "POST remove/")
    assert (candidate.partners[0].kind, candidate.partners[0].witnesses[0].number) == ("request", 2)


def test_partners_are_three_and_those_of_its_kind_come_first() -> None:
    others = [
        unit(sent(WRITE, 5, 7, site=site(20, name)), name=name, kind="request" if "/" in name else "call")
        for name in ("box.office.sell", "POST a/", "POST b/", "POST c/")
    ]
    edit = unit(read_seat(), sent(WRITE, 20, 7))

    assert partners(derive(edit, *others)[0]) == ("POST a/", "POST b/", "POST c/")
    assert partners(derive(edit, *others[:2])[0]) == ("POST a/", "box.office.sell")


def test_an_id_stays_when_lines_move() -> None:
    def ids(offset: int) -> set[str]:
        lines = (sent(WRITE, 20, 7, site=site(2 + offset)), sent(SELL, True, 7, site=site(3 + offset)))
        return {candidate.id for candidate in derive(unit(read_seat(sold=False), *lines))}

    assert ids(0) == ids(40)
    assert len(ids(0)) == 2


def test_every_kind_that_is_found_has_remedies() -> None:
    units = [
        unit(read_seat(sold=False), sent(WRITE, 20, 7), sent(SELL, True, 7), look(), insert()),
        transfer(7, 8, 0),
        transfer(8, 7, 1),
    ]

    assert {*kinds(*units)} <= set(REMEDIES)
