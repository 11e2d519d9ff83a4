"""Fixtures of the admin's tests."""

import pytest

from tests.django_lockstep.admin.urls import SeatAdmin
from tests.testapps.shop.models import Seat


@pytest.fixture
def named_by_guest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let seats be referred to by their guests, as by a foreign key that is not to the primary key."""
    monkeypatch.setattr(SeatAdmin, "to_field_allowed", lambda admin, request, field: field == "guest")


@pytest.fixture
def seat(db: None) -> Seat:
    return Seat.objects.create(guest="Ada")
