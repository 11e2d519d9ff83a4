"""``queryset.update()`` counts as a change: a later stale save does not overwrite it."""

from typing import Any

import pytest
from concurrency.exceptions import RecordModifiedError


def test_the_version_goes_up(model: Any, seat: Any, stale: Any) -> None:
    model.objects.filter(pk=seat.pk).update(guest="Ada")
    stale.row = "B"
    with pytest.raises(RecordModifiedError):
        stale.save()
    assert model.objects.filter(guest="Ada", version=2).exists()
