"""After a conflict, changes of different fields merge; the rest is for a person to decide."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_lockstep.locking import FieldConflict, StaleVersionError, merge_fields
from tests.testapps.shop.models import Seat, StampedSeat


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


def test_both_made_the_same_of_it(pair: tuple[Seat, Seat]) -> None:
    mine, theirs = pair
    theirs.guest = mine.guest = "Ada"
    theirs.save()
    assert mine.merge_if_disjoint().disjoint
    mine.save()
    assert Seat.objects.get().version == 2


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
    assert mine.merge_if_disjoint().disjoint
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
