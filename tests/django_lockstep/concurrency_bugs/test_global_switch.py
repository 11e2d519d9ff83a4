"""A switch that somebody turns elsewhere in the process does not take the guard away."""

from typing import Any

import pytest
from concurrency.api import disable_concurrency
from concurrency.exceptions import RecordModifiedError


def test_the_guard_holds(seat: Any, stale: Any) -> None:
    seat.guest = "Ada"
    seat.save()
    stale.row = "B"
    with disable_concurrency(), pytest.raises(RecordModifiedError):
        stale.save()
