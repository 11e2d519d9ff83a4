"""What other programs write counts as a change: a later stale save does not overwrite it."""

from typing import Any

import pytest
from concurrency.exceptions import RecordModifiedError
from django.db import connection


def test_the_version_goes_up(model: Any, stale: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE {model._meta.db_table} SET guest = 'Ada'")
    stale.row = "B"
    with pytest.raises(RecordModifiedError):
        stale.save()
    assert model.objects.filter(guest="Ada", version=2).exists()
