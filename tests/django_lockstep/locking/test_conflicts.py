"""After a conflict, changes of different fields merge; the rest is for a person to decide."""

import logging
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction
from hypothesis import given
from hypothesis import strategies as st

from django_lockstep.locking import FieldConflict, StaleVersionError, ignore_versions, merge_fields
from tests.django_lockstep.locking.looks import fresh
from tests.support.sessions import Session
from tests.testapps.shop.models import BoxSeat, Seat, StampedSeat


@pytest.fixture
def pair(db: None) -> tuple[Seat, Seat]:
    """Two instances of one row."""
    seat = Seat.objects.create()
    return seat, Seat.objects.get(pk=seat.pk)


def test_changes_of_different_fields_merge_and_can_be_saved(pair: tuple[Seat, Seat]) -> None:
    mine, theirs = pair
    theirs.guest = "Ada"
    theirs.save()
    mine.row, mine.wishes = "B", ["aisle"]
    with pytest.raises(StaleVersionError):
        mine.save()
    merge = mine.merge_if_disjoint()
    assert (merge.disjoint, merge.version, mine.version) == (True, 2, 2)
    mine.save()
    saved = Seat.objects.get()
    assert (saved.row, saved.guest, saved.wishes, saved.version) == ("B", "Ada", ["aisle"], 3)


def test_a_field_that_both_changed_is_the_conflict_and_nothing_is_touched(pair: tuple[Seat, Seat]) -> None:
    mine, theirs = pair
    theirs.guest, theirs.row = "Ada", "B"
    theirs.save()
    mine.guest, mine.price = "Bob", 3
    before = dict(vars(mine))
    merge = mine.merge_if_disjoint()
    assert not merge.disjoint
    assert merge.conflicts == {"guest": FieldConflict(base="", mine="Bob", theirs="Ada")}
    assert (merge.values["row"], merge.values["price"], merge.version) == ("B", 3, 2)
    assert vars(mine) == before
    with pytest.raises(StaleVersionError):
        mine.save()


def test_a_merge_may_meet_the_next_conflict(pair: tuple[Seat, Seat]) -> None:
    mine, theirs = pair
    theirs.update_if_unchanged(guest="Ada")
    mine.row = "B"
    mine.merge_if_disjoint()
    theirs.update_if_unchanged(guest="Eve")
    with pytest.raises(StaleVersionError):
        mine.save()


def test_a_time_stamp_is_no_conflict(db: None) -> None:
    mine = StampedSeat.objects.create()
    theirs = StampedSeat.objects.get()
    theirs.guest = "Ada"
    theirs.save()
    with pytest.raises(StaleVersionError):
        mine.save()
    assert async_to_sync(mine.amerge_if_disjoint)().disjoint
    assert mine.guest == "Ada"


def test_a_row_that_is_gone_cannot_be_merged(pair: tuple[Seat, Seat]) -> None:
    mine, theirs = pair
    theirs.delete()
    with pytest.raises(Seat.DoesNotExist):
        mine.merge_if_disjoint()


rows = st.fixed_dictionaries({name: st.integers(0, 2) for name in "abc"})


@given(rows, rows, rows)
def test_every_field_is_merged_or_a_real_conflict(base: Any, mine: Any, theirs: Any) -> None:
    merge = merge_fields(base, mine, theirs, version=1)
    assert merge.values.keys() | merge.conflicts.keys() == base.keys()
    for name, value in merge.values.items():
        changed = {side[name] for side in (mine, theirs) if side[name] != base[name]}
        assert changed in ({value}, set())
        assert changed or value == base[name]
    for name in merge.conflicts:
        assert len({base[name], mine[name], theirs[name]}) == 3


# Versions can be ignored: for a block, for models that are named, and not without a trace


@pytest.fixture(params=[Seat, BoxSeat])
def stale(db: None, request: pytest.FixtureRequest) -> Any:
    """Return a seat whose row went on to version 2."""
    seat = request.param.objects.create()
    assert fresh(seat).update_if_unchanged(guest="Ada", row="B")
    return seat


@pytest.mark.parametrize("guest", ["Bob", ""], ids=["a changed value", "a value as it was read"])
def test_a_stale_save_overwrites_with_a_version_above(stale: Any, guest: str) -> None:
    stale.guest = guest
    with ignore_versions(Seat):
        stale.save()
    assert (fresh(stale).guest, fresh(stale).row, fresh(stale).version, stale.version) == (guest, "A", 3, 3)


def test_a_stale_delete_goes_through(stale: Any) -> None:
    with ignore_versions(Seat):
        stale.delete()
    assert not type(stale).objects.exists()


def test_both_are_logged_with_both_versions(stale: Any, caplog: pytest.LogCaptureFixture) -> None:
    label, key = stale._meta.label, stale.pk
    with ignore_versions(Seat), caplog.at_level(logging.WARNING, "lockstep.locking"):
        stale.save()
        assert fresh(stale).update_if_unchanged(guest="Cyd")
        stale.delete()
    assert caplog.messages == [
        f"save of {label} {key} ignores version 2 of the row; the instance was read with version 1",
        f"delete of {label} {key} ignores version 4 of the row; the instance was read with version 3",
    ]


def test_what_is_not_stale_is_saved_as_ever(stale: Any, caplog: pytest.LogCaptureFixture) -> None:
    current = fresh(stale)
    with ignore_versions(Seat):
        current.save()
        current.guest = "Bob"
        current.save()
    assert (current.version, fresh(stale).version) == (3, 3)
    assert not caplog.messages


def test_other_models_and_the_time_after_are_compared(stale: Any) -> None:
    stamped = StampedSeat.objects.create()
    assert fresh(stamped).update_if_unchanged(guest="Ada")
    with ignore_versions(Seat), pytest.raises(StaleVersionError):
        stamped.save()
    stale.guest = "Bob"
    with pytest.raises(StaleVersionError):
        stale.save()


def test_a_row_that_is_gone_stays_gone(stale: Any) -> None:
    fresh(stale).delete()
    with ignore_versions(Seat), pytest.raises(type(stale).DoesNotExist):
        stale.save()
    assert not type(stale).objects.exists()


def test_after_a_rollback_the_instance_has_to_be_read_again(stale: Any) -> None:
    with ignore_versions(Seat), transaction.atomic():
        stale.save()
        transaction.set_rollback(True)
    with pytest.raises(ValueError, match="refresh_from_db"):
        stale.save()
    assert fresh(stale).version == 2


def test_another_thread_is_compared(seat: Seat, other: Session) -> None:
    assert fresh(seat).update_if_unchanged(guest="Ada")
    seat.guest = "Bob"
    with ignore_versions(Seat):
        assert isinstance(other.start(seat.save).exception(), StaleVersionError)


def test_the_models_have_to_be_named() -> None:
    with pytest.raises(TypeError, match="needs the models"), ignore_versions():
        pass
