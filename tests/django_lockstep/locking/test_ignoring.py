"""Versions can be ignored: for a block, for models that are named, and not without a trace."""

import logging
from typing import Any

import pytest
from django.db import transaction

from django_lockstep.locking import StaleVersionError, ignore_versions
from tests.django_lockstep.locking.looks import fresh
from tests.support.sessions import Session
from tests.testapps.shop.models import BoxSeat, Seat, StampedSeat


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


def test_another_thread_is_compared(other: Session) -> None:
    seat = Seat.objects.create()
    assert fresh(seat).update_if_unchanged(guest="Ada")
    seat.guest = "Bob"
    with ignore_versions(Seat):
        assert isinstance(other.start(seat.save).exception(), StaleVersionError)


def test_the_models_have_to_be_named() -> None:
    with pytest.raises(TypeError, match="needs the models"), ignore_versions():
        pass
