"""``manage.py reconcile`` in this process."""

import io
from typing import Any

from django.core.management import call_command


def reconcile(**options: Any) -> tuple[int, str, str]:
    """Return its exit status, its output and its messages."""
    out, err = io.StringIO(), io.StringIO()
    try:
        call_command("reconcile", stdout=out, stderr=err, no_color=True, **options)
    except SystemExit as end:
        return int(end.code or 0), out.getvalue(), err.getvalue()
    return 0, out.getvalue(), err.getvalue()
