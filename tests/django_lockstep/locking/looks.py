"""What a test looks at: a row as it is now, and what a call sends."""

from typing import Any

from django.db import connection
from django.test.utils import CaptureQueriesContext


def fresh(instance: Any) -> Any:
    """Return the instance as its row is now."""
    return type(instance).objects.get(pk=instance.pk)


def statements(function: Any, *args: Any, **kwargs: Any) -> list[str]:
    """Return the first words of the statements that the call sends."""
    with CaptureQueriesContext(connection) as captured:
        function(*args, **kwargs)
    return [entry["sql"].split()[0] for entry in captured]
