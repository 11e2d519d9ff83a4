"""What other processes run."""

import os
import signal
from collections.abc import Callable
from typing import Any

from django.db import connection

from accounts.contrib.queued.consuming import apply_batch
from accounts.contrib.queued.models import QueuedChange


def killed_before(statement: int, *, size: int) -> int:
    """Apply a batch, and die without a word before its so-manieth statement; return how many it had."""
    seen = 0

    def count(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        nonlocal seen
        seen += 1
        if seen == statement:
            os.kill(os.getpid(), signal.SIGKILL)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(count):
        apply_batch(QueuedChange, size=size)
    return seen
