"""What runs in a worker process: one database connection, and one task after the other."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator, MutableSequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from django_lockstep.lab.simulator.channel import WorkerChannel

__all__ = ["WorkerConnection", "main"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConnection:
    """How a worker connects."""

    alias: str
    """The database, as the settings name it."""
    database: str
    """The database's name as the parent uses it: under a test runner it is not the one in the settings."""
    session: str
    """The ``application_name`` of its connection, by which the server's view of it can be found."""


def main(
    config: WorkerConnection, pipe: Connection[Any, Any], *, number: int, stop: Any, completed: MutableSequence[int]
) -> None:
    """Connect, report that, and do tasks until the parent closes the pipe; then exit as any process does."""
    # Ctrl-C reaches the whole process group; the parent decides when workers stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(EOFError, ConnectionError), pipe:
        try:
            with connected(config):
                pipe.send(("done", None))
                WorkerChannel(pipe, number=number, stop=stop, completed=completed).serve()
        except (EOFError, ConnectionError):
            raise
        except Exception as error:  # noqa: BLE001 - the parent reports it
            pipe.send(("failed", f"{type(error).__name__}: {error}"))


@contextlib.contextmanager
def connected(config: WorkerConnection) -> Iterator[None]:
    """Set Django up and keep this process connected to the parent's database."""
    import django
    from django.apps import apps
    from django.db import connections

    # The fork server has set Django up already; a spawned process has not.
    if not apps.ready:
        django.setup()
    connection = connections[config.alias]
    # Spawned processes read the settings, in which a test runner has not replaced the name.
    connection.settings_dict["NAME"] = config.database
    options = connection.settings_dict.get("OPTIONS") or {}
    connection.settings_dict["OPTIONS"] = {**options, "application_name": config.session}
    try:
        connection.ensure_connection()
        yield
    finally:
        connection.close()
        close_pool = getattr(connection, "close_pool", None)
        if close_pool is not None:
            close_pool()
