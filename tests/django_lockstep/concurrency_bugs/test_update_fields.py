"""``save(update_fields=[...])`` counts as a change: a later stale save does not overwrite it."""

from typing import Any

import pytest
from concurrency.exceptions import RecordModifiedError


def test_the_version_goes_along(seat: Any, stale: Any) -> None:
    seat.guest = "Ada"
    seat.save(update_fields=["guest"])
    stale.row = "B"
    with pytest.raises(RecordModifiedError):
        stale.save()
    seat.refresh_from_db()
    assert (seat.guest, seat.row, seat.version) == ("Ada", "A", 2)
