"""Each module here specifies one hole closed: it holds for our model and fails for django-concurrency's alone."""

from typing import Any

import pytest

from tests.testapps.shop.models import PlainSeat, Seat

PLAIN = pytest.param(
    PlainSeat, marks=pytest.mark.xfail(strict=True, reason="django-concurrency 2.8.1 alone"), id="plain"
)


@pytest.fixture(params=[pytest.param(Seat, id="ours"), PLAIN])
def model(request: pytest.FixtureRequest, db: None) -> Any:
    """The model under test."""
    return request.param


@pytest.fixture
def seat(model: Any) -> Any:
    """A row of it, as it was created."""
    return model.objects.create(guest="nobody")


@pytest.fixture
def stale(seat: Any) -> Any:
    """An instance of the same row, read before anything happens to it."""
    return type(seat).objects.get(pk=seat.pk)
