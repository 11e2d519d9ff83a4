"""Whoever deletes has seen what is deleted."""

from typing import Any

import pytest
from concurrency.exceptions import RecordModifiedError


def test_a_changed_row_is_not_deleted(model: Any, seat: Any, stale: Any) -> None:
    seat.guest = "Ada"
    seat.save()
    with pytest.raises(RecordModifiedError):
        stale.delete()
    assert model.objects.get().guest == "Ada"
