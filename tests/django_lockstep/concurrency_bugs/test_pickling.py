"""A conflict can be told to another process."""

import pickle
from typing import Any

import pytest
from concurrency.exceptions import RecordModifiedError


def test_the_error_survives_pickling(seat: Any, stale: Any) -> None:
    seat.guest = "Ada"
    seat.save()
    stale.guest = "Bob"
    with pytest.raises(RecordModifiedError) as caught:
        stale.save()
    copy = pickle.loads(pickle.dumps(caught.value))  # noqa: S301
    assert (type(copy), str(copy)) == (type(caught.value), str(caught.value))
