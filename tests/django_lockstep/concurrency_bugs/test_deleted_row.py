"""A row that is gone does not come back by a stale save."""

from typing import Any

import pytest


@pytest.mark.parametrize("update_fields", [None, ["guest"]])
def test_it_does_not_exist(model: Any, seat: Any, stale: Any, update_fields: Any) -> None:
    model.objects.filter(pk=seat.pk).delete()
    stale.guest = "Ada"
    with pytest.raises(model.DoesNotExist):
        stale.save(update_fields=update_fields)
    assert not model.objects.exists()
