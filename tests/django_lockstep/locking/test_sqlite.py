"""Versions on a database without guards, in this process: an SQLite database in memory beside PostgreSQL."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import NotSupportedError, connections, models, transaction
from django.db.models import F

from accounts.strategies import STRATEGIES
from django_lockstep.locking import StaleVersionError, isolated_transaction, lock_row, verify_unchanged
from tests.testapps.shop.models import Locker, OddSeat, Poster, Seat, Turnstile

LITE = "lite"


@pytest.fixture(autouse=True)
def lite(monkeypatch: pytest.MonkeyPatch, django_db_blocker: Any) -> Iterator[None]:
    engine = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
    settings = connections.configure_settings({"default": {}, LITE: engine})
    monkeypatch.setitem(connections.settings, LITE, settings[LITE])
    with django_db_blocker.unblock():
        with connections[LITE].schema_editor() as editor:
            for model in (Seat, OddSeat, Locker, Turnstile):
                editor.create_model(model)
        yield
        connections[LITE].connection.close()  # close() of Django's keeps a database in memory
    del connections[LITE]


def rows(model: Any) -> Any:
    return model.objects.using(LITE)


def test_an_upsert_raises_the_versions_of_the_rows_that_were_there() -> None:
    old = rows(Seat).create(guest="Ada")
    stale = rows(Seat).get()
    seats = rows(Seat).bulk_create(
        [Seat(pk=old.pk, guest="Bob"), Seat(pk=old.pk + 1, guest="Cyd")],
        update_conflicts=True,
        unique_fields=["id"],
        update_fields=["guest"],
    )
    assert list(rows(Seat).order_by("pk").values_list("guest", "version")) == [("Bob", 2), ("Cyd", 1)]
    assert [seat.version for seat in seats] == [2, 1]
    stale.row = "B"
    with pytest.raises(StaleVersionError):
        stale.save()


def test_an_upsert_knows_names_that_need_quoting() -> None:
    for expected in (1, 2, 3):
        rows(OddSeat).bulk_create(
            [OddSeat(code="A", guest=str(expected))],
            update_conflicts=True,
            unique_fields=["code"],
            update_fields=["guest"],
        )
        assert rows(OddSeat).get().version == expected


def test_an_upsert_of_uncounted_columns_keeps_the_version() -> None:
    gate = rows(Turnstile).create()
    for names, expected in ((["passages"], 1), (["passages", "guest"], 2)):
        rows(Turnstile).bulk_create(
            [Turnstile(pk=gate.pk, passages=5)], update_conflicts=True, unique_fields=["id"], update_fields=names
        )
        assert rows(Turnstile).get().version == expected


def test_the_querysets_update_of_uncounted_columns_keeps_the_version() -> None:
    rows(Turnstile).create()
    rows(Turnstile).update(passages=F("passages") + 1)
    assert rows(Turnstile).get().version == 1
    rows(Turnstile).update(passages=F("passages") + 1, guest="Ada")
    assert rows(Turnstile).get().version == 2


def test_a_plain_insert_is_not_touched() -> None:
    rows(Seat).bulk_create([Seat(), Seat()], ignore_conflicts=True)
    assert list(rows(Seat).values_list("version", flat=True)) == [1, 1]


def test_a_key_that_is_used_again_begins_at_the_clock() -> None:
    old = rows(Locker).create(number="7")
    rows(Locker).get().delete()
    new = rows(Locker).create(number="7")
    assert new.version == rows(Locker).get().version > 10**15
    assert new.version != old.version
    with pytest.raises(StaleVersionError):
        old.save(force_write=True)


def test_rows_can_be_verified_and_locked_in_place() -> None:
    seat = rows(Seat).create()
    stale = rows(Seat).get()
    with transaction.atomic(using=LITE):
        verify_unchanged(seat)
        assert seat.update_if_unchanged(guest="Ada")
        with pytest.raises(StaleVersionError):
            verify_unchanged(stale)
        assert lock_row(stale).guest == "Ada"


def test_what_needs_postgresql_is_refused() -> None:
    pk = rows(Seat).create().pk
    limited = pytest.raises(NotSupportedError, match="timeout needs PostgreSQL's lock_timeout")
    with transaction.atomic(using=LITE), limited:
        lock_row(rows(Seat), pk, timeout=1)
    serializable = isolated_transaction(isolation_level="serializable", using=LITE)
    with pytest.raises(NotSupportedError, match="PostgreSQL only, not on sqlite"), serializable:
        pytest.fail("the block must not run")
    for name in ("advisory", "serializable"):
        with pytest.raises(NotSupportedError, match="PostgreSQL"):
            STRATEGIES[name].bound(using=LITE).deposit(1, 1)


# What a deletion changes there


def test_w041_names_what_a_deletion_changes() -> None:
    messages = Poster.check(databases=None)
    assert [(message.id, message.obj) for message in messages] == [("lockstep.W041", Poster._meta.get_field("seat"))]
    assert LITE in messages[0].msg
    assert Poster._meta.get_field("seat").remote_field.on_delete is models.SET_NULL
    assert Seat.check(databases=None) == []
