"""Seats for the tests of locking."""

import pytest

from tests.testapps.shop.models import Seat


@pytest.fixture
def seat(db: None) -> Seat:
    return Seat.objects.create()


@pytest.fixture
def seats(transactional_db: None) -> list[Seat]:
    return [Seat.objects.create(row=name) for name in "ABC"]
