"""Worker processes for tests: spawned, each with a connection of its own to the test database."""

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.util import Finalize

import django
from django.db import connection, connections


@contextmanager
def processes(count: int) -> Iterator[ProcessPoolExecutor]:
    """Give processes that run module-level functions on the database of this test."""
    name = connection.settings_dict["NAME"]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, mp_context=context, initializer=_prepare, initargs=(name,)) as pool:
        yield pool


def _prepare(name: str) -> None:
    django.setup()
    connection.settings_dict["NAME"] = name
    Finalize(None, connections.close_all, exitpriority=100)
