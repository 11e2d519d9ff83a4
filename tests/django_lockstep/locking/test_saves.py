"""``save()`` and ``delete()`` of a versioned model, in every way Django can write it."""

import asyncio
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.core import serializers
from django.db import IntegrityError, connections, transaction
from django.db.models import F
from django.forms import modelform_factory
from django.test.utils import CaptureQueriesContext

from django_lockstep.locking import SerializationFailure, StaleVersionError, isolated_transaction, verify_unchanged
from tests.django_lockstep.locking.looks import every_kind, fresh, save_once, statements
from tests.support.sessions import Session
from tests.testapps.shop.models import BoxSeat, CheapSeat, OddSeat, PairSeat, Place, Seat, Stage, StampedSeat, UuidSeat

pytestmark = pytest.mark.django_db


# Every kind of model


@every_kind
def test_a_save_raises_the_version_by_one(make: Any) -> None:
    seat = make()
    for version, guest in [(2, "Ada"), (3, "Bob")]:
        seat.guest = guest
        seat.save()
        assert (seat.version, fresh(seat).version, fresh(seat).guest) == (version, version, guest)


@every_kind
@pytest.mark.parametrize("update_fields", [None, ["guest"]])
def test_a_stale_save_is_refused_with_both_versions(make: Any, update_fields: Any) -> None:
    seat = make()
    stale = fresh(seat)
    seat.guest = "Ada"
    seat.save()
    stale.guest = "Bob"
    with transaction.atomic():
        with pytest.raises(StaleVersionError) as caught:
            stale.save(update_fields=update_fields)
        assert fresh(seat).guest == "Ada"
    error = caught.value
    assert (error.model, error.pk, error.expected, error.actual, error.target) == (type(seat), seat.pk, 1, 2, stale)
    assert (
        str(error)
        == f"{type(seat)._meta.label} {seat.pk} was changed since it was read (version 2, you have 1): not saved."
    )
    assert (stale.version, stale.guest) == (1, "Bob")


@every_kind
@pytest.mark.parametrize("update_fields", [None, ["guest"]])
def test_a_row_that_is_gone_is_not_inserted_again(make: Any, update_fields: Any) -> None:
    seat = make()
    fresh(seat).delete()
    seat.guest = "Ada"
    with transaction.atomic():
        with pytest.raises(type(seat).DoesNotExist):
            seat.save(update_fields=update_fields)
        assert not type(seat).objects.exists()
    assert not Seat.objects.exists()
    assert not Place.objects.exists()


@every_kind
def test_a_stale_delete_is_refused(make: Any) -> None:
    seat = make()
    stale = fresh(seat)
    seat.guest = "Ada"
    seat.save()
    with transaction.atomic():
        with pytest.raises(StaleVersionError) as caught:
            stale.delete()
        assert type(seat).objects.exists()
    assert caught.value.action == "delete"
    seat.delete()
    with pytest.raises(type(seat).DoesNotExist):
        stale.delete()


@every_kind
def test_saving_without_a_change_writes_nothing(make: Any) -> None:
    seat = fresh(make())
    changes = isinstance(seat, StampedSeat)
    seat.save()
    assert fresh(seat).version == (2 if changes else 1)


@pytest.mark.django_db(transaction=True)
@every_kind
def test_after_a_rolled_back_save_the_instance_has_to_be_read_again(make: Any) -> None:
    seat = make()
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        seat.guest = "Ada"
        seat.save()
        assert seat.version == 2
        _ = 1 / 0
    with pytest.raises(ValueError, match="refresh_from_db"):
        seat.save()
    seat.refresh_from_db()
    seat.guest = "Ada"
    seat.save()
    assert (fresh(seat).guest, fresh(seat).version, seat.version) == ("Ada", 2, 2)


@every_kind
def test_a_copy_is_a_new_row_with_a_history_of_its_own(make: Any) -> None:
    seat = make()
    seat.guest = "Ada"
    seat.save()
    copy = fresh(seat)
    copy.pk = {OddSeat: "B", UuidSeat: uuid.uuid4(), PairSeat: ("C", 1)}.get(type(seat))
    if isinstance(seat, BoxSeat | CheapSeat | Stage):
        copy.id = None
    copy._state.adding = isinstance(seat, BoxSeat | Stage)
    copy.save()
    assert copy.pk != seat.pk
    assert (copy.version, fresh(copy).version, fresh(copy).guest, fresh(seat).version) == (1, 1, "Ada", 2)


# One statement, no more


def test_no_statement_is_sent_for_no_fields(seat: Seat) -> None:
    seat.guest = "Ada"
    assert statements(seat.save, update_fields=[]) == []


def test_a_save_without_a_change_still_notices_what_happened(seat: Seat) -> None:
    stale, orphan = fresh(seat), fresh(seat)
    seat.guest = "Ada"
    seat.save()
    with pytest.raises(StaleVersionError):
        stale.save()
    seat.delete()
    with pytest.raises(Seat.DoesNotExist):
        orphan.save()


def test_a_change_inside_a_mutable_value_is_a_change(seat: Seat) -> None:
    seat.wishes.append("aisle")
    seat.save()
    assert (fresh(seat).wishes, fresh(seat).version) == (["aisle"], 2)


def test_an_expression_is_a_change(seat: Seat) -> None:
    seat.price = F("price") + 1
    seat.save()
    assert (fresh(seat).price, fresh(seat).version) == (11, 2)


def test_a_change_that_is_taken_back_is_none(seat: Seat) -> None:
    seat.guest = "Ada"
    seat.guest = ""
    assert statements(seat.save) == ["SELECT"]


def test_update_fields_that_did_not_change_write_nothing(seat: Seat) -> None:
    seat.guest = "Ada"
    seat.save(update_fields=["row"])
    assert fresh(seat).guest == ""
    seat.save()
    assert fresh(seat).guest == "Ada"


# Deferred fields and refreshing


def test_other_deferred_fields_are_no_obstacle(seat: Seat) -> None:
    partial = Seat.objects.defer("row").get(pk=seat.pk)
    partial.guest = "Ada"
    partial.save()
    assert (fresh(seat).guest, fresh(seat).version) == ("Ada", 2)


def test_a_field_that_is_loaded_later_does_not_hide_a_conflict(seat: Seat) -> None:
    partial = Seat.objects.defer("row").get(pk=seat.pk)
    seat.row = "B"
    seat.save()
    assert partial.row == "B"
    partial.guest = "Ada"
    with pytest.raises(StaleVersionError):
        partial.save()


def test_a_version_that_is_loaded_later_is_refused(seat: Seat) -> None:
    partial = Seat.objects.defer("version").get(pk=seat.pk)
    assert partial.version == 1
    for write in (partial.save, partial.delete, lambda: partial.update_if_unchanged(guest="Ada")):
        with pytest.raises(ValueError, match="later than its other values"):
            write()
    partial.refresh_from_db()
    partial.guest = "Ada"
    partial.save()


def test_refreshing_the_version_with_the_same_value_is_fine(seat: Seat) -> None:
    seat.refresh_from_db(fields=["version", "guest"])
    seat.guest = "Ada"
    seat.save()


def test_refreshing_the_version_alone_does_not_hide_a_conflict(seat: Seat) -> None:
    stale = fresh(seat)
    assert seat.update_if_unchanged(row="B")
    stale.refresh_from_db(fields=["version"])
    with pytest.raises(ValueError, match="version"):
        stale.save()


# Ways to create


def test_update_or_create_and_get_or_create(db: None) -> None:
    seat, created = Seat.objects.get_or_create(row="Z", defaults={"guest": "Ada"})
    assert (created, seat.version) == (True, 1)
    again, created = Seat.objects.update_or_create(row="Z", defaults={"guest": "Bob"})
    assert (created, again.version, fresh(seat).guest) == (False, 2, "Bob")
    with pytest.raises(StaleVersionError):
        seat.save()


def test_a_new_row_does_not_overwrite_one_that_is_there(seat: Seat) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        Seat(pk=seat.pk, guest="Ada").save()
    assert fresh(seat).guest == ""


def test_an_older_state_made_by_hand_is_stale(seat: Seat) -> None:
    former = Seat(pk=seat.pk, version=1, guest="Bob")
    seat.guest = "Ada"
    seat.save()
    with transaction.atomic():
        with pytest.raises(StaleVersionError) as caught:
            former.save()
        assert fresh(seat).guest == "Ada"
    assert (caught.value.expected, caught.value.actual) == (1, 2)
    former.version = 2
    former.save()
    assert (fresh(seat).guest, fresh(seat).version) == ("Bob", 3)


# Concurrency


@pytest.mark.parametrize("how", ["save", "delete"])
def test_the_second_of_two_waits_and_is_told(seat: Seat, other: Session, how: str) -> None:
    late = fresh(seat)
    late.guest = "Bob"
    with transaction.atomic():
        seat.guest = "Ada"
        seat.save()
        end = other.start(getattr(late, how))
        other.wait_until_blocked()
    assert isinstance(end.exception(), StaleVersionError)
    assert fresh(seat).guest == "Ada"


@pytest.mark.parametrize(
    "write",
    [save_once, lambda seat: seat.update_if_unchanged(guest="Ada"), verify_unchanged],
    ids=["save", "update_if_unchanged", "verify_unchanged"],
)
def test_above_read_committed_a_conflict_is_a_serialization_failure(
    seat: Seat, other: Session, write: Callable[[Seat], object]
) -> None:
    with (
        pytest.raises(SerializationFailure) as caught,
        isolated_transaction(isolation_level="repeatable read"),
    ):
        mine = fresh(seat)
        other.run(save_once, fresh(seat), "Bob")
        write(mine)
    assert (caught.value.model, caught.value.sqlstate) == (Seat, "40001")
    assert caught.value.pk in (seat.pk, [seat.pk])


# Async


@pytest.mark.django_db(transaction=True)
def test_the_async_twins() -> None:
    async def work() -> Any:
        try:
            return await steps()
        finally:
            await sync_to_async(connections.close_all)()

    async def steps() -> Any:
        seat = await Seat.objects.acreate()
        stale = await Seat.objects.aget(pk=seat.pk)
        seat.guest = "Ada"
        await seat.asave()
        assert await seat.aupdate_if_unchanged(row="B")
        assert not await stale.aupdate_if_unchanged(row="C")
        with pytest.raises(StaleVersionError):
            await stale.adelete()
        await seat.asave(force_write=True)
        assert await Seat.objects.aupdate_if_unchanged(seat.pk, 4, row="D") == 5
        assert await Seat.objects.aput_if_unchanged(seat.pk, 4, row="E") is None
        return await Seat.objects.aget()

    seat = asyncio.run(work())
    assert (seat.guest, seat.row, seat.version) == ("Ada", "D", 5)


# What cannot be saved


@every_kind
@pytest.mark.parametrize("name", ["typo", "id", "guset"])
def test_update_fields_that_are_no_columns_are_refused_as_django_does(make: Any, name: str) -> None:
    seat = make()
    with CaptureQueriesContext(connections["default"]) as sent, pytest.raises(ValueError, match=name):
        seat.save(update_fields=["guest", name])
    assert not len(sent)


def test_a_new_row_without_a_version_gets_the_first_one() -> None:
    seat = Seat(version=None)  # type: ignore[misc]
    seat.save()
    assert (seat.version, fresh(seat).version) == (1, 1)


def test_a_version_that_was_taken_away_is_named(seat: Seat) -> None:
    seat.version = None  # type: ignore[assignment]
    seat.guest = "Ada"
    with pytest.raises(ValueError, match="None for its 'version'"):
        seat.save()


def test_a_form_that_was_sent_no_version_is_not_valid(seat: Seat) -> None:
    form = modelform_factory(Seat, fields=["guest", "version"])({"guest": "Ada"}, instance=seat)
    assert list(form.errors) == ["version"]


# Deserialized objects, which are saved raw


def loaded(text: str) -> Any:
    (saved,) = serializers.deserialize("json", text)
    saved.save()
    return saved.object


def test_a_deserialized_row_keeps_its_version_where_there_is_none(seat: Seat) -> None:
    seat.guest = "Ada"
    seat.save()
    text = serializers.serialize("json", [seat])
    Seat.objects.all().delete()
    assert (loaded(text).version, fresh(seat).version) == (2, 2)


def test_over_a_row_that_is_there_it_gets_one_above_both(seat: Seat) -> None:
    seat.guest = "Ada"
    seat.save()
    text = serializers.serialize("json", [seat])
    for version in (3, 4):
        assert (loaded(text).version, fresh(seat).version) == (version, version)
