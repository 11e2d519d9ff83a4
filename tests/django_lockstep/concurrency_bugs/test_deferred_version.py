"""An instance that was read without its version cannot pass as the newest one."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext


@pytest.mark.parametrize("how", ["only", "defer", "refresh"])
def test_it_is_refused_before_any_sql(model: Any, seat: Any, how: str) -> None:
    if how == "only":
        stale = model.objects.only("guest").get(pk=seat.pk)
    elif how == "defer":
        stale = model.objects.defer("version").get(pk=seat.pk)
    else:
        stale = model.objects.get(pk=seat.pk)
    seat.row = "B"
    seat.save()
    if how == "refresh":
        stale.refresh_from_db(fields=["version"])
    stale.guest = "Ada"
    with CaptureQueriesContext(connection) as captured, pytest.raises(ValueError, match="version"):
        stale.save()
    assert not captured.captured_queries
    stale.refresh_from_db()
    stale.guest = "Ada"
    if how == "refresh":
        stale.save()
