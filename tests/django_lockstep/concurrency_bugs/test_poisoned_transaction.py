"""A conflict that ``save()`` meets leaves the surrounding transaction usable."""

from typing import Any

import pytest
from concurrency.exceptions import RecordModifiedError
from django.db import transaction


def test_the_next_query_works(model: Any, seat: Any, stale: Any) -> None:
    seat.guest = "Ada"
    seat.save()
    stale.guest = "Bob"
    with transaction.atomic():
        with pytest.raises(RecordModifiedError):
            stale.save()
        model.objects.create(guest="Eve")
    assert set(model.objects.values_list("guest", flat=True)) == {"Ada", "Eve"}
